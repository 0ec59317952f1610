// SPDX-License-Identifier: Apache-2.0
// The memory of Python's arrays: the buffer protocol (NumPy, mmap, bytes), torch,
// __cuda_array_interface__, DLPack, and runnel's own blocks.
#pragma once

#include "references.hpp"

#include <runnel/memory_kind.hpp>

#include <array>
#include <cstddef>
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
  static constexpr int most_dimensions = 16;

  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  /// Takes hold of the memory of `object`. @throws TypeError for an object without memory;
  /// BufferError where it must be writable and is not
  void open(nb::handle object, bool is_written);

  void* data = nullptr;
  std::size_t bytes = 0;
  bool is_contiguous = true;  // from the first byte to the last, in the order of the dimensions
  int dimensions = 0;         // the next two are set where it is not contiguous
  std::array<std::ptrdiff_t, most_dimensions> shape;
  std::array<std::ptrdiff_t, most_dimensions> strides;  // in bytes
  std::size_t item_bytes = 1;
  Framework framework = Framework::none;
  int device = -1;  // of device memory, where it is known
  std::optional<runnel::MemoryKind> kind;

 private:
  bool open_block(nb::handle object);
  bool open_buffer(nb::handle object, bool is_written);
  bool open_torch(nb::handle object);
  bool open_cuda_array(nb::handle object, bool is_written);
  bool open_dlpack(nb::handle object, bool is_written);
  void set_shape(nb::handle shape, nb::handle strides, std::ptrdiff_t stride_unit);
  void set_packed_strides();
  void find_size();
  void refuse_objects(nb::handle object, bool is_numpy) const;

  Py_buffer view_{};  // view_.obj is null where there is none
  nb::object owner_;
  nb::object storage_;  // of a tensor
};

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
