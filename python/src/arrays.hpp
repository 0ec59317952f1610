// SPDX-License-Identifier: Apache-2.0
// The memory of Python's arrays: the buffer protocol (NumPy, mmap, bytes), torch,
// __cuda_array_interface__, DLPack, and runnel's own blocks.
#pragma once

#include "references.hpp"
#include "types.hpp"

#include <runnel/memory_kind.hpp>
#include <runnel/stream.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace binding {

/// Whose streams an array's work goes to where no stream is current.
enum class Framework : unsigned char { none, torch, cupy };

/// The bytes of an array without gaps. @throws ValueError for sizes that no memory has
[[nodiscard]] std::size_t size_of(std::span<const std::ptrdiff_t> shape, std::size_t item_bytes);

/// The memory of an array, for as long as this object lives. Made and destroyed under the
/// interpreter's lock.
class Array {
 public:
  static constexpr int max_dimensions = 16;

  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  /// Takes hold of the memory of `object`. @throws TypeError for an object without memory;
  /// BufferError where it must be writable and is not
  void open(nb::handle object, bool is_written);
  /// For the collector of cycles.
  int traverse(visitproc visit, void* arg) const;
  /// Counts that a tensor of torch is written, as torch does itself: a backward pass that needs
  /// what it was before then says so.
  void count_write() const;

  void* data = nullptr;
  std::size_t bytes = 0;
  bool is_contiguous = true;  // from the first byte to the last, in the order of the dimensions
  int dimensions = 0;         // -1: more than fit, in memory that is contiguous
  std::array<std::ptrdiff_t, max_dimensions> shape;
  std::array<std::ptrdiff_t, max_dimensions> strides;  // in bytes; set where it is not contiguous
  std::size_t item_bytes = 1;
  const NamedType* type = nullptr;  // null: one without a name
  bool is_bytes = false;            // of whatever type and shape
  nb::object dtype;                 // the library's own type, where `type` is null and it has one
  Framework framework = Framework::none;
  int device = -1;            // of device memory, where it is known
  bool is_on_device = false;  // it has memory of one
  // In whose order the memory is given out again once it is free, where that is known.
  std::optional<runnel::StreamRef> freed_in;
  std::optional<runnel::MemoryKind> kind;

 private:
  bool open_block(nb::handle object);
  bool open_buffer(nb::handle object, bool is_written);
  bool open_torch(nb::handle object);
  bool open_cuda_array(nb::handle object, bool is_written);
  bool open_dlpack(nb::handle object, bool is_written);
  [[nodiscard]] bool set_dimensions(std::ptrdiff_t count);
  void set_sizes(nb::handle sizes);
  void set_strides(nb::handle steps, std::ptrdiff_t unit);
  void set_type(nb::handle of);
  void set_packed_strides();
  void find_size();
  void set_buffer_type(nb::handle object, bool is_numpy);

  Py_buffer view_{};  // view_.obj is null where there is none
  nb::object owner_;
  nb::object storage_;                  // of a tensor
  std::shared_ptr<const void> memory_;  // of a block, which close() takes away from it
};

/// Refuses arrays of other types or shapes: their bytes would be taken for something else. One of
/// the two may be bytes, in one dimension. @throws ValueError
void refuse_other_elements(const Array& to, const Array& from);

/// What a copy keeps.
struct KeptArrays : Holder {
  Array to;
  Array from;
};

/// The names of Python that are looked up at each call, made once.
struct Names {
  nb::object data_ptr, nbytes, numel, is_contiguous, is_cuda, device, index, shape, stride,
      element_size;
  nb::object cuda_array, dlpack, dlpack_device, dtype, hasobject, is_cpu, is_conj, is_neg,
      untyped_storage;
};
[[nodiscard]] const Names& names();
/// torch.Tensor if torch is loaded; else null. The same for numpy.ndarray.
[[nodiscard]] PyObject* torch_tensor_type();
[[nodiscard]] PyObject* numpy_array_type();

}  // namespace binding
