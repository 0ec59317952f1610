// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include "arrays.hpp"
#include "current.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "types.hpp"

#include <runnel/pinned_pool.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <limits>
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
  SharedObject owner;
};
template <class M>
constexpr const char* capsule_name = "dltensor";
template <>
inline constexpr const char* capsule_name<ManagedVersioned> = "dltensor_versioned";

template <class M>
[[nodiscard]] nb::object capsule_of(void* data, Place device, Type type,
                                    const std::vector<std::int64_t>& shape, SharedObject owner) {
  auto made = std::make_unique<Exported<M>>();
  made->shape = shape;
  made->strides.assign(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i)
    made->strides[i - 2] = made->strides[i - 1] * shape[i - 1];
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
  if (capsule == nullptr) throw nb::python_error();
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
                        SharedObject owner, bool is_versioned) {
  if (is_versioned)
    return capsule_of<ManagedVersioned>(data, device, type, shape, std::move(owner));
  return capsule_of<Managed>(data, device, type, shape, std::move(owner));
}

}  // namespace dlpack

namespace {

[[nodiscard]] dlpack::Place place_of(const Block& block) {
#if defined RUNNEL_BACKEND_CUDA
  return {dlpack::cuda, block.device()};
#elif defined RUNNEL_BACKEND_HIP
  return {dlpack::rocm, block.device()};
#else
  return {dlpack::cpu, 0 * block.device()};
#endif
}
constexpr bool is_on_host = std::string_view{RUNNEL_BACKEND} == "host";

/// Orders the consumer behind the block's stream. `consumer` is what DLPack says: None or a
/// stream's handle; -1 orders nothing.
void order_consumer(const Block& block, nb::handle consumer) {
  const runnel::StreamRef stream = block.stream();
  if constexpr (is_on_host) {
    if (!consumer.is_none())
      refuse_buffer("the memory is the host's: there is no stream to wait in");
    if (!block.is_in_order) wait_for_stream(stream, std::nullopt);
    return;
  }
  if (!consumer.is_none() && nb::cast<std::int64_t>(consumer) == -1) return;
  const auto handle = consumer.is_none() ? std::intptr_t{0} : nb::cast<std::intptr_t>(consumer);
  const runnel::Device device{block.device()};
  unlocked([&] {
    const auto native = reinterpret_cast<runnel::native::stream>(handle);
    runnel::StreamRef::from_native(native, device).wait_stream(stream);
  });
}

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
  return dlpack::make_capsule(block.data(), place, block.type->type, block.shape, share(self),
                              is_versioned);
}

[[nodiscard]] nb::dict export_cuda_array(const Block& block) {
  const NamedType& type = *block.type;
  if (is_on_host || type.letters == nullptr) {
    PyErr_SetString(PyExc_AttributeError,
                    is_on_host
                        ? "the block is in the host's memory: it has no __cuda_array_interface__"
                        : "__cuda_array_interface__ has no name for this type: use DLPack");
    throw nb::python_error();
  }
  nb::dict made;
  nb::list sizes;
  for (const std::int64_t size : block.shape) sizes.append(size);
  made["shape"] = nb::tuple(sizes);
  made["typestr"] = type.letters;
  made["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(block.data()), false);
  made["version"] = 3;
  made["strides"] = nb::none();
  const auto handle = reinterpret_cast<std::uintptr_t>(block.stream().native());
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

/// The same memory, or a part of it, as other elements.
[[nodiscard]] Block view(const Block& block, nb::handle of_type,
                         std::optional<std::vector<std::int64_t>> shape, std::size_t offset) {
  const std::string dtype = name_of_type(of_type);
  Block part{block};
  if (offset > block.bytes()) refuse_value("offset: the view begins beyond the end of the block");
  part.offset += offset;
  const std::size_t item = find_type(dtype).type.bits / 8U;
  if (!shape) {
    if ((block.bytes() - offset) % item != 0)
      refuse_value("the bytes of the block are no whole number of such elements");
    shape = std::vector<std::int64_t>{static_cast<std::int64_t>((block.bytes() - offset) / item)};
  }
  shape_block(part, dtype, std::move(*shape));
  if (part.bytes() > block.bytes() - offset)
    refuse_value("the view ends beyond the end of the block");
  return part;
}

void bind_block(nb::module_& module) {
  nb::class_<Block>(module, "Block", nb::is_weak_referenceable(),
                    "Device memory, allocated and freed in the order of a stream. It has no "
                    "arithmetic: torch, CuPy,\n"
                    "JAX and NumPy take it by DLPack, as in ``torch.from_dlpack(block)``, and "
                    "their stream waits for\n"
                    "the block's. ``runnel.empty()`` makes one.")
      .def_prop_ro("nbytes", &Block::bytes, "Its size in bytes.")
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
          "view", &view, nb::arg("dtype") = "uint8", nb::arg("shape") = nb::none(),
          nb::arg("offset") = 0,
          nb::sig("def view(self, dtype: object = 'uint8', shape: collections.abc.Sequence[int] | "
                  "None = None, offset: int = 0) -> Block"),
          "The same memory as elements of another type or shape, from ``offset`` bytes on. Raises\n"
          "ValueError if it does not fit.")
      .def(
          "record_stream",
          [](Block& block, PyStream& stream) {
            unlocked([&] { runnel::record_stream(stream.ref, block.data()); });
          },
          nb::arg("stream"),
          "Keeps the memory until what ``stream`` has been given is done. ``copy()`` does that by "
          "itself.")
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
            PyErr_SetString(
                PyExc_TypeError,
                "NumPy has no arrays in a device's memory: runnel.to_host(block) copies "
                "a block (numpy.from_dlpack(block) shows the host backend's)");
            throw nb::python_error();
          },
          nb::sig("def __array__(self, *arguments: object, **keywords: object) -> typing.NoReturn"),
          "Raises TypeError: NumPy would make an array with the block as its one object.")
      .def("__len__",
           [](const Block& block) {
             return block.shape.empty() ? 0 : static_cast<std::size_t>(block.shape[0]);
           })
      .def("__repr__", &describe);
}

/// Pinned memory with the buffer protocol.
struct Pinned {
  explicit Pinned(std::size_t bytes)
      : memory{unlocked([bytes] { return runnel::PinnedBuffer<std::byte>{bytes}; })} {}
  runnel::PinnedBuffer<std::byte> memory;
};
int get_pinned(PyObject* self, Py_buffer* view, int flags) noexcept {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError,
                    "the PinnedMemory was never made: a class that is derived from it calls "
                    "super().__init__()");
    return -1;
  }
  Pinned& pinned = *nb::inst_ptr<Pinned>(self);
  static char nothing = 0;
  void* const data =
      pinned.memory.size() != 0 ? static_cast<void*>(pinned.memory.data()) : &nothing;
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(pinned.memory.size()), 0,
                           flags);
}
PyType_Slot pinned_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_pinned)},
                              {0, nullptr}};

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

void bind_registration(nb::module_& module) {
  nb::class_<Registration>(
      module, "Registration", nb::is_weak_referenceable(),
      "The memory of an array, pinned where it lies for as long as this object lives, or until\n"
      "``close()``. It keeps the array. Pinning takes several times as long as a copy, so it pays "
      "for\n"
      "what is copied often.")
      .def(nb::init<nb::object>(), nb::arg("array"))
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
                     nb::type_slots(pinned_slots),
                     "Bytes of pinned memory from the pool, with the buffer protocol. "
                     "``runnel.pinned_empty()`` makes\n"
                     "a NumPy array of it.")
      .def(nb::init<std::size_t>(), nb::arg("nbytes"))
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
          [](std::optional<std::size_t> bytes) {
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
    refuse_value("the block ended with its call of overlap(): it must not be used afterwards");
  return memory->data != nullptr ? memory->data + offset : nullptr;
}

std::size_t Block::bytes() const { return size_of(shape, type->type.bits / 8U); }

const Block* as_block(nb::handle object) {
  static const nb::handle type = nb::type<Block>();
  const bool is_block = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == type.ptr();
  return is_block && nb::inst_ready(object) ? nb::inst_ptr<Block>(object) : nullptr;
}

Block make_block(std::size_t bytes, runnel::StreamRef stream) {
  auto memory = std::make_shared<Block::Memory>();
  unlocked([&] { memory->owned = runnel::DeviceBuffer<std::byte>{bytes, stream}; });
  memory->data = memory->owned.data();
  memory->bytes = bytes;
  return {std::move(memory), stream};
}

void shape_block(Block& block, const std::string& type_name, std::vector<std::int64_t> shape) {
  const NamedType& type = find_type(type_name);
  if (size_of(shape, type.type.bits / 8U) > block.memory->bytes - block.offset)
    refuse_value("the elements end beyond the end of the block");
  block.type = &type;
  block.is_bytes = false;
  block.shape = std::move(shape);
}

void bind_blocks(nb::module_& module) {
  bind_block(module);
  bind_registration(module);
  bind_pinned(module);
  module.def(
      "empty",
      [](std::ptrdiff_t nbytes, nb::object stream) {
        if (nbytes < 0) refuse_value("a block has no negative size");
        return make_block(static_cast<std::size_t>(nbytes), stream_of(stream));
      },
      nb::arg("nbytes"), nb::arg("stream") = nb::none(),
      nb::sig("def empty(nbytes: int, stream: Stream | None = None) -> Block"),
      "``nbytes`` bytes of device memory, uninitialised, on the device of ``stream`` (default: "
      "the\n"
      "current stream). The memory is allocated and freed in the order of that stream; nothing "
      "waits.\n"
      "Raises OutOfMemoryError.");
}

}  // namespace binding
