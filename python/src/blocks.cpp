// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include "arguments.hpp"
#include "arrays.hpp"
#include "backend.hpp"
#include "current.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "types.hpp"

#include <runnel/pinned_pool.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace binding {
namespace dlpack {
namespace {

/// What an exported array owns.
template <class M>
struct Exported {
  M managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<const void> owner;
};
template <class M>
constexpr const char* capsule_name = "dltensor";
template <>
inline constexpr const char* capsule_name<ManagedVersioned> = "dltensor_versioned";

template <class M>
[[nodiscard]] nb::object capsule_of(void* data, Place device, Type type,
                                    const std::vector<std::int64_t>& shape,
                                    const std::vector<std::int64_t>& strides,
                                    std::shared_ptr<const void> owner) {
  auto made = std::make_unique<Exported<M>>();
  made->shape = shape;
  made->strides = strides;
  made->owner = std::move(owner);
  made->managed.tensor = {data,
                          device,
                          static_cast<std::int32_t>(shape.size()),
                          type,
                          made->shape.data(),
                          made->strides.data(),
                          0};
  made->managed.context = made.get();
  made->managed.deleter = [](M* self) { delete static_cast<Exported<M>*>(self->context); };
  if constexpr (requires(M m) { m.version; }) made->managed.version = {1, 0};
  PyObject* const capsule = PyCapsule_New(&made->managed, capsule_name<M>, [](PyObject* object) {
    // A consumer that took the array has renamed the capsule.
    if (PyCapsule_IsValid(object, capsule_name<M>) == 0) return;
    auto* const managed = static_cast<M*>(PyCapsule_GetPointer(object, capsule_name<M>));
    managed->deleter(managed);
  });
  check(capsule == nullptr);
  static_cast<void>(made.release());
  return nb::steal(capsule);
}

}  // namespace

const Tensor& tensor_of(const nb::object& capsule, bool is_written) {
  if (PyCapsule_IsValid(capsule.ptr(), capsule_name<ManagedVersioned>) != 0) {
    const auto* const managed = static_cast<ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), capsule_name<ManagedVersioned>));
    if (managed->version.major != 1)
      refuse_buffer("__dlpack__() gave an array of a version of DLPack that runnel does not know");
    if (is_written && (managed->flags & read_only_flag) != 0) refuse_read_only();
    return managed->tensor;
  }
  if (PyCapsule_IsValid(capsule.ptr(), capsule_name<Managed>) == 0)
    refuse_buffer(
        "__dlpack__() gave no array: its capsule has been used by another library, or is none of "
        "DLPack's");
  return static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), capsule_name<Managed>))->tensor;
}

nb::object make_capsule(void* data, Place device, Type type, const std::vector<std::int64_t>& shape,
                        const std::vector<std::int64_t>& strides, std::shared_ptr<const void> owner,
                        bool is_versioned) {
  if (is_versioned)
    return capsule_of<ManagedVersioned>(data, device, type, shape, strides, std::move(owner));
  return capsule_of<Managed>(data, device, type, shape, strides, std::move(owner));
}

}  // namespace dlpack

namespace {

[[nodiscard]] std::int64_t item_bytes_of(const Block& block) { return block.type->type.bits / 8; }

[[nodiscard]] dlpack::Place place_of(const Block& block) {
  if (is_on_host()) return {dlpack::cpu, 0};
  return {backend == "cuda" ? dlpack::cuda : dlpack::rocm, block.device()};
}

/// In elements.
[[nodiscard]] std::vector<std::int64_t> strides_of(const Block& block) {
  if (!block.strides.empty()) return block.strides;
  std::vector<std::int64_t> made(block.shape.size(), 1);
  for (std::size_t i = made.size(); i > 1; --i) made[i - 2] = made[i - 1] * block.shape[i - 1];
  return made;
}

/// The block's stream. If it has ended, the device's default stream, which waits for the block's
/// work.
[[nodiscard]] runnel::StreamRef stream_behind(const Block& block) {
  if (block.stream().is_valid()) return block.stream();
  const auto owned = block.memory->owned;  // A thread may close the block meanwhile.
  return unlocked([&] {
    const runnel::StreamRef stream = runnel::Device{block.device()}.default_stream();
    if (owned != nullptr) stream.wait_for_uses(*owned);
    return stream;
  });
}

/// Orders the consumer behind the block's stream. `consumer` is what DLPack says: None or a
/// stream's handle; -1 orders nothing.
void order_consumer(const Block& block, nb::handle consumer) {
  const runnel::StreamRef stream = stream_behind(block);
  if (is_on_host()) {
    if (!consumer.is_none())
      refuse_buffer("the memory is the host's: there is no stream to wait in");
    return wait_for_stream(stream, std::nullopt);
  }
  if (!consumer.is_none() && nb::cast<std::int64_t>(consumer) == -1) return;
  const auto handle = consumer.is_none() ? std::intptr_t{0} : nb::cast<std::intptr_t>(consumer);
  const runnel::Device device{block.device()};
  const auto owned = block.memory->owned;
  unlocked([&] {
    const auto native = reinterpret_cast<runnel::native::stream>(handle);
    const auto other = runnel::StreamRef::from_native(native, device);
    other.wait_stream(stream);
    // The consumer may drop the array while its stream still uses it.
    if (owned != nullptr) owned->record_stream(other);
  });
}

/// A consumer of a block's memory.
struct Export {
  explicit Export(nb::handle block)
      : object{share(block)}, memory{nb::cast<const Block&>(block).memory} {
    ++memory->exports;
  }
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;
  ~Export() { --memory->exports; }
  SharedObject object;  // the last to end: it keeps the memory, which ends under the lock
  std::shared_ptr<Block::Memory> memory;
};

[[nodiscard]] nb::object export_dlpack(nb::handle self, nb::handle stream, nb::handle max_version,
                                       nb::handle dl_device, nb::handle copy) {
  const Block& block = nb::cast<const Block&>(self);
  const dlpack::Place place = place_of(block);
  if (!dl_device.is_none() &&
      (nb::cast<int>(dl_device[0]) != place.type || nb::cast<int>(dl_device[1]) != place.id))
    refuse_buffer(
        "a block is exported where it is: copy it to the other device with runnel.copy()");
  if (!copy.is_none() && nb::cast<bool>(copy))
    refuse_buffer("a block is exported without a copy: use runnel.copy()");
  order_consumer(block, stream);
  const bool is_versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  return dlpack::make_capsule(block.data(), place, block.type->type, block.shape, strides_of(block),
                              std::make_shared<const Export>(self), is_versioned);
}

[[nodiscard]] nb::dict export_cuda_array(const Block& block) {
  const NamedType& type = *block.type;
  if (is_on_host() || type.letters == nullptr) {
    refuse(PyExc_AttributeError,
           is_on_host() ? "the block is in the host's memory: it has no __cuda_array_interface__"
                        : "__cuda_array_interface__ has no name for this type: use DLPack");
  }
  nb::dict made;
  made["shape"] = nb::tuple(nb::cast(block.shape));
  made["typestr"] = type.letters;
  made["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(block.data()), false);
  made["version"] = 3;
  made["strides"] = nb::none();
  if (!block.strides.empty()) {
    nb::list steps;
    for (const std::int64_t step : block.strides) steps.append(step * item_bytes_of(block));
    made["strides"] = nb::tuple(steps);
  }
  const auto handle = reinterpret_cast<std::uintptr_t>(stream_behind(block).native());
  made["stream"] = handle == 0 ? std::uintptr_t{1} : handle;
  return made;
}

[[nodiscard]] std::string describe(const Block& block) {
  std::string sizes;
  for (const std::int64_t size : block.shape)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (block.shape.size() == 1) sizes += ",";
  return std::string{"<runnel.Block of "} + block.type->name + " (" + sizes + "), " +
         std::to_string(block.bytes()) + " bytes, device " + std::to_string(block.device()) +
         (block.memory->is_live ? ">" : ", ended>");
}

void refuse_order(const Block& block) {
  if (!block.strides.empty())
    refuse_value("the block's elements are not in C's order: torch and CuPy show it by DLPack");
}

/// A shape: a size, or one for each dimension. @throws TypeError
[[nodiscard]] std::vector<std::int64_t> sizes_of(nb::handle shape) {
  std::vector<std::int64_t> sizes;
  const auto add = [&](nb::handle size) {
    if (PyIndex_Check(size.ptr()) == 0)
      refuse_argument("shape", size, "nbytes, or one size for each dimension");
    sizes.push_back(index_of(size, PyExc_OverflowError));
  };
  if (PyIndex_Check(shape.ptr()) != 0) {
    add(shape);
  } else {
    for (nb::handle size : nb::iter(shape)) add(size);
  }
  return sizes;
}

/// The same memory, or a part of it, as other elements.
[[nodiscard]] Block view(const Block& block, nb::handle of_type, nb::handle shape,
                         Argument<std::size_t> from) {
  refuse_order(block);
  const std::size_t offset = from.of("offset");
  const std::string dtype = name_of_type(of_type);
  Block part{block};
  if (offset > block.bytes()) refuse_value("offset: the view begins beyond the end of the block");
  part.offset += offset;
  const std::size_t item = find_type(dtype).type.bits / 8U;
  const std::size_t left = block.bytes() - offset;
  if (shape.is_none() && left % item != 0)
    refuse_value("the bytes of the block are no whole number of such elements");
  shape_block(
      part, dtype,
      shape.is_none() ? std::vector{static_cast<std::int64_t>(left / item)} : sizes_of(shape));
  if (part.bytes() > left) refuse_value("the view ends beyond the end of the block");
  return part;
}

/// The same elements in another shape, of which one size may be -1.
[[nodiscard]] Block reshape(const Block& block, nb::args sizes) {
  refuse_order(block);
  std::vector<std::int64_t> shape = sizes_of(nb::len(sizes) == 1 ? nb::object(sizes[0]) : sizes);
  const std::int64_t count = std::ssize(block.shape) == 0
                                 ? 1
                                 : static_cast<std::int64_t>(block.bytes()) / item_bytes_of(block);
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const std::size_t others = size_of(shape, 1);
    *open = others == 0 ? 0 : count / static_cast<std::int64_t>(others);
  }
  Block made{block};
  shape_block(made, block.type->name, shape);
  if (made.bytes() != block.bytes()) refuse_value("the shape has another number of elements");
  return made;
}

/// block[i], block[a:b], block[i, a:b]: a part without gaps.
[[nodiscard]] Block part_of(const Block& block, nb::handle index) {
  refuse_order(block);
  const nb::object all =
      nb::isinstance<nb::tuple>(index) ? nb::borrow(index) : nb::object(nb::make_tuple(index));
  const auto wanted = static_cast<std::size_t>(nb::len(all));
  if (wanted > block.shape.size())
    throw nb::index_error("the block has fewer dimensions than the index");
  std::vector<std::int64_t> shape = block.shape;
  std::int64_t step = static_cast<std::int64_t>(block.bytes()), first = 0;
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    const nb::object at = all[i];
    if (dropped < i) refuse_value("a part of a block has no gaps: only the last index is a slice");
    step = shape[i] != 0 ? step / shape[i] : 0;
    if (PySlice_Check(at.ptr()) != 0) {
      Py_ssize_t begin, end, stride;
      check(PySlice_Unpack(at.ptr(), &begin, &end, &stride) != 0);
      const Py_ssize_t count = PySlice_AdjustIndices(shape[i], &begin, &end, stride);
      if (stride != 1) refuse_value("a part of a block has no gaps: a slice's step is 1");
      first += begin * step;
      shape[i] = count;
    } else {
      const Py_ssize_t number = index_of(at, PyExc_IndexError);
      if (number < -shape[i] || number >= shape[i])
        throw nb::index_error("the index is outside of the block");
      first += (number < 0 ? number + shape[i] : number) * step;
      ++dropped;
    }
  }
  Block made{block};
  made.offset += static_cast<std::size_t>(first);
  shape_block(made, block.type->name,
              {shape.begin() + static_cast<std::ptrdiff_t>(dropped), shape.end()});
  return made;
}

void bind_parts(nb::class_<Block>& type) {
  type.def_prop_ro(
          "ndim", [](const Block& block) { return block.shape.size(); }, "Its dimensions.")
      .def_prop_ro("itemsize", &item_bytes_of, "The bytes of an element.")
      .def_prop_ro(
          "size", [](const Block& block) { return size_of(block.shape, 1); }, "Its elements.")
      .def_prop_ro(
          "strides",
          [](const Block& block) {
            nb::list steps;
            for (const std::int64_t step : strides_of(block))
              steps.append(step * item_bytes_of(block));
            return nb::tuple(steps);
          },
          nb::sig("def strides(self) -> tuple[int, ...]"),
          "Bytes from one element to the next in each dimension, as NumPy has them.")
      .def("reshape", &reshape, nb::arg("shape"),
           nb::sig("def reshape(self, *shape: int | collections.abc.Sequence[int]) -> Block"),
           "The same memory in another shape with as many elements. One size may be -1.")
      .def("__getitem__", &part_of, nb::arg("index").none(),
           nb::sig("def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> Block"),
           "A part without gaps, which shares the memory: ``block[i]``, ``block[a:b]``, ``block[i, "
           "a:b]``.");
}

void bind_block(nb::module_& module) {
  nb::class_<Block> type(module, "Block", nb::is_weak_referenceable(),
                         "Device memory, allocated and freed in the order of a stream. It has no "
                         "arithmetic: torch, CuPy,\n"
                         "JAX and NumPy take it by DLPack, as in ``torch.from_dlpack(block)``, and "
                         "their stream waits for\n"
                         "the block's. ``runnel.empty()`` makes one.");
  bind_parts(type);
  type.def_prop_ro("nbytes", &Block::bytes, "Its size in bytes.")
      .def_prop_ro(
          "ptr", [](const Block& block) { return reinterpret_cast<std::uintptr_t>(block.data()); },
          "The address on the device.")
      .def_prop_ro(
          "shape", [](const Block& block) { return nb::tuple(nb::cast(block.shape)); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Elements in each dimension.")
      .def_prop_ro(
          "dtype", [](const Block& block) { return block.type->name; },
          "The element type, as ``'float32'``.")
      .def_prop_ro(
          "device", [](const Block& block) { return runnel::Device{block.device()}; },
          "The device that the memory is on.")
      .def(
          "view", &view, nb::arg("dtype").none() = "uint8", nb::arg("shape") = nb::none(),
          nb::arg("offset").none() = 0,
          nb::sig("def view(self, dtype: object = 'uint8', shape: collections.abc.Sequence[int] | "
                  "None = None, offset: int = 0) -> Block"),
          "The same memory as elements of another type or shape, from ``offset`` bytes on. Raises\n"
          "ValueError if it does not fit.")
      .def(
          "record_stream",
          [](Block& block, nb::handle stream) {
            const PyStream& user = as_stream(stream);
            if (block.bytes() == 0) return;
            void* const data = block.data();  // It may raise, which needs the lock.
            unlocked([&] { runnel::record_stream(user.ref, data); });
          },
          nb::arg("stream").none(), nb::sig("def record_stream(self, stream: Stream) -> None"),
          "Keeps the memory until what ``stream`` has been given is done. ``copy()`` does that by "
          "itself.")
      .def(
          "close",
          [](Block& block) {
            Block::Memory& memory = *block.memory;
            if (memory.exports != 0) refuse_buffer("arrays of other libraries show the block");
            memory.is_live = false;
            memory.owned.reset();
          },
          nb::lock_self(),
          "Frees the memory in the order of its stream, before its object and those of its parts "
          "end. Raises\n"
          "BufferError while arrays of other libraries show it.")
      .def("__dlpack__", &export_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, "
                   "int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object"),
           "The DLPack capsule. ``stream`` is the consumer's, which waits for the block's. On the "
           "host\n"
           "backend the call waits.")
      .def(
          "__dlpack_device__",
          [](const Block& block) {
            return nb::make_tuple(place_of(block).type, place_of(block).id);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"),
          "Kind and number of the device, as DLPack counts them.")
      .def_prop_ro("__cuda_array_interface__", &export_cuda_array,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"),
                   "For CuPy and Numba. AttributeError on the host backend.")
      .def(
          "__array__",
          [](nb::handle, nb::args, nb::kwargs) {
            refuse(PyExc_TypeError,
                   "NumPy has no arrays in a device's memory: runnel.to_host(block) copies "
                   "a block (numpy.from_dlpack(block) shows the host backend's)");
          },
          nb::sig("def __array__(self, *arguments: object, **keywords: object) -> typing.NoReturn"),
          "Raises TypeError: NumPy would make an array with the block as its one object.")
      .def("__len__",
           [](const Block& block) {
             if (block.shape.empty())
               throw nb::type_error("a block without dimensions has no length");
             return static_cast<std::size_t>(block.shape[0]);
           })
      .def("__repr__", &describe);
}

/// The buffer protocol of a class that has `bytes()`, `exports()` and `is_read_only`.
template <class T>
int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError,
                    "the object was never made: a class that is derived from it calls "
                    "super().__init__()");
    return -1;
  }
  T& object = *nb::inst_ptr<T>(self);
  static std::byte nothing{};
  const std::span<std::byte> bytes = object.bytes();
  const int failed = PyBuffer_FillInfo(view, self, bytes.empty() ? &nothing : bytes.data(),
                                       std::ssize(bytes), object.is_read_only ? 1 : 0, flags);
  if (failed == 0) ++object.exports();
  return failed;
}
template <class T>
void release_buffer(PyObject* self, Py_buffer*) noexcept {
  --nb::inst_ptr<T>(self)->exports();
}
template <class T>
PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer<T>)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer<T>)},
                              {0, nullptr}};

/// Memory with the buffer protocol, for as long as its block lives.
struct Window {
  [[nodiscard]] std::span<std::byte> bytes() const { return {memory->data, memory->bytes}; }
  [[nodiscard]] std::atomic<int>& exports() const { return memory->exports; }
  std::shared_ptr<Block::Memory> memory;
  bool is_read_only;
};

/// Pinned memory with the buffer protocol.
struct Pinned {
  explicit Pinned(Argument<std::size_t> nbytes) {
    const std::size_t size = nbytes.of("nbytes");
    memory = unlocked([size] { return runnel::PinnedBuffer<std::byte>{size}; });
  }
  ~Pinned() {
    unlocked([this] { memory = {}; });
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  void close() {
    if (shown != 0) refuse_buffer("arrays and views still show the pinned memory");
    auto ending = std::move(memory);
    unlocked([&] { ending = {}; });
  }
  [[nodiscard]] std::span<std::byte> bytes() { return {memory.data(), memory.size()}; }
  [[nodiscard]] std::atomic<int>& exports() { return shown; }
  runnel::PinnedBuffer<std::byte> memory;
  std::atomic<int> shown = 0;
  static constexpr bool is_read_only = false;
};

/// Memory of an array that is pinned where it lies.
struct Registration {
  explicit Registration(nb::handle object) {
    auto kept = std::make_unique<Taken>();
    kept->array.open(object, false);
    if (!kept->array.is_contiguous)
      refuse_value("only an array whose memory is contiguous can be pinned");
    bytes = kept->array.bytes;
    void* const data = kept->array.data;
    registered = unlocked([&] { return runnel::HostRegistration{data, bytes}; });
    taken = std::move(kept);
  }
  ~Registration() { close(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  void close() {
    const std::unique_ptr<Taken> ending = std::move(taken);
    unlocked([of = std::move(registered)]() mutable { of = {}; });
  }
  struct Taken {
    Array array;
  };
  runnel::HostRegistration registered;
  std::unique_ptr<Taken> taken;
  std::size_t bytes = 0;
};

int traverse_registration(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& taken = nb::inst_ptr<Registration>(self)->taken;
  return taken == nullptr ? 0 : taken->array.traverse(visit, arg);
}
int clear_registration(PyObject* self) {
  nb::inst_ptr<Registration>(self)->close();
  return 0;
}
PyType_Slot registration_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_registration)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_registration)},
    {0, nullptr}};

void bind_registration(nb::module_& module) {
  nb::class_<Registration>(
      module, "Registration", nb::is_weak_referenceable(), nb::type_slots(registration_slots),
      "The memory of an array, pinned where it lies for as long as this object lives, or until\n"
      "``close()``. It keeps the array. Pinning takes several times as long as a copy, so it pays "
      "for\n"
      "what is copied often.")
      .def(nb::init<nb::object>(), nb::arg("array").none())
      .def("close", &Registration::close, nb::lock_self(),
           "Ends it. Waits for the devices, because the memory may be freed next.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Registration"))
      .def(
          "__exit__", [](Registration& self, nb::args) { self.close(); }, nb::lock_self(),
          nb::sig("def __exit__(self, *arguments: object) -> None"))
      .def("__repr__", [](const Registration& self) {
        return "<runnel.Registration of " + std::to_string(self.bytes) +
               (self.taken ? " bytes>" : " bytes, closed>");
      });
}

[[nodiscard]] nb::dict pinned_statistics() {
  const runnel::PinnedStatistics now = runnel::PinnedPool::statistics();
  nb::dict made;
  made["in_use"] = now.in_use;
  made["peak"] = now.peak;
  made["cached"] = now.cached;
  made["blocks"] = now.blocks;
  made["cached_blocks"] = now.cached_blocks;
  made["hits"] = now.hits;
  made["misses"] = now.misses;
  made["releasing"] = now.releasing;
  return made;
}

void bind_pinned(nb::module_& module) {
  nb::class_<Pinned>(module, "PinnedMemory", nb::is_weak_referenceable(),
                     nb::type_slots(buffer_slots<Pinned>),
                     "Bytes of pinned memory from the pool, with the buffer protocol. "
                     "``runnel.pinned_empty()`` makes\n"
                     "a NumPy array of it.")
      .def(nb::init<Argument<std::size_t>>(), nb::arg("nbytes").none())
      .def("close", &Pinned::close, nb::lock_self(),
           "Gives the memory back. Raises BufferError while arrays or views show it.")
      .def_prop_ro(
          "nbytes", [](const Pinned& pinned) { return pinned.memory.size(); }, "Its size in bytes.")
      .def("__repr__", [](const Pinned& pinned) {
        return "<runnel.PinnedMemory of " + std::to_string(pinned.memory.size()) + " bytes>";
      });
  struct PinnedPool {};
  nb::class_<PinnedPool>(module, "PinnedPool", "The process's pool of pinned memory.")
      .def_static("statistics", &pinned_statistics, nb::sig("def statistics() -> dict[str, int]"),
                  "What it holds, in bytes and blocks. Makes no runtime call.")
      .def_static(
          "set_limit",
          [](Argument<std::optional<std::size_t>> nbytes) {
            const auto bytes = nbytes.of("nbytes");
            unlocked([&] {
              runnel::PinnedPool::set_limit(
                  bytes.value_or(std::numeric_limits<std::size_t>::max()));
            });
          },
          nb::arg("nbytes").none(), "The most bytes that it may hold; None: no limit.")
      .def_static("reset_peak", &runnel::PinnedPool::reset_peak,
                  "Makes the bytes in use now the peak.")
      .def_static(
          "trim", [] { unlocked([] { runnel::PinnedPool::trim(); }); },
          "Gives up every cached block that no stream uses.");
}

}  // namespace

Block::Block(std::shared_ptr<Memory> of, runnel::StreamRef stream)
    : memory{std::move(of)}, stream_{stream}, device_{stream.device().ordinal()} {
  shape = {static_cast<std::int64_t>(memory->bytes)};
}

void* Block::data() const {
  if (!memory->is_live)
    refuse_value(
        "the block was closed, or ended with its call of overlap(): it must not be used "
        "afterwards");
  return memory->data != nullptr ? memory->data + offset : nullptr;
}

std::size_t Block::bytes() const { return size_of(shape, type->type.bits / 8U); }

nb::object view_of(std::shared_ptr<Block::Memory> memory, bool is_read_only) {
  const nb::object window = nb::cast(Window{std::move(memory), is_read_only});
  return made_by(PyMemoryView_FromObject(window.ptr()));
}

const Block* as_block(nb::handle object) {
  static const nb::handle type = nb::type<Block>();
  const bool is_block = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == type.ptr();
  return is_block && nb::inst_ready(object) ? nb::inst_ptr<Block>(object) : nullptr;
}

Block make_block(std::size_t bytes, runnel::StreamRef stream) {
  using Buffer = runnel::DeviceBuffer<std::byte>;
  auto memory = std::make_shared<Block::Memory>();
  auto made = unlocked([&] { return std::make_unique<Buffer>(bytes, stream); });
  // A full stream holds whoever frees memory in it, and may wait for a function of Python's.
  memory->owned = {made.release(), [](Buffer* ending) { unlocked([=] { delete ending; }); }};
  memory->data = memory->owned->data();
  memory->bytes = bytes;
  return {std::move(memory), stream};
}

void shape_block(Block& block, const std::string& type_name, std::vector<std::int64_t> shape,
                 const std::vector<std::size_t>& order) {
  const NamedType& type = find_type(type_name);
  if (size_of(shape, type.type.bits / 8U) > block.memory->bytes - block.offset)
    refuse_value("the elements end beyond the end of the block");
  block.type = &type;
  block.is_bytes = false;
  block.shape = std::move(shape);
  block.strides.clear();
  if (order.empty()) return;
  block.strides.assign(block.shape.size(), 0);
  std::int64_t step = 1;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    block.strides.at(*at) = step;
    step *= block.shape[*at];
  }
}

void bind_blocks(nb::module_& module) {
  nb::class_<Window>(module, "_Window", nb::type_slots(buffer_slots<Window>));
  module.def(
      "_view", [](const Block& block) { return view_of(block.memory, false); }, nb::arg("block"),
      nb::sig("def _view(block: Block) -> memoryview"), "The bytes of all of its memory.");
  module.def(
      "_exports", [](const Block& block) { return block.memory->exports.load(); }, nb::arg("block"),
      "How many arrays and views of other libraries show its memory.");
  module.def("_is_type", &is_type, nb::arg("name"), "Whether a Block has such elements.");
  bind_block(module);
  bind_registration(module);
  bind_pinned(module);
  module.def(
      "empty",
      [](nb::handle shape, nb::handle dtype, nb::object stream) {
        const NamedType& type = find_type(name_of_type(dtype));
        std::vector<std::int64_t> sizes = sizes_of(shape);
        Block made = make_block(size_of(sizes, type.type.bits / 8U), stream_of(stream));
        shape_block(made, type.name, std::move(sizes));
        return made;
      },
      nb::arg("shape").none(), nb::arg("dtype").none() = "uint8", nb::arg("stream") = nb::none(),
      nb::sig("def empty(shape: object, dtype: object = 'uint8', stream: Stream | None = None) -> "
              "Block"),
      "runnel/_calls.py has its documentation.");
}

}  // namespace binding
