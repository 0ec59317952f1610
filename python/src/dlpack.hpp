// SPDX-License-Identifier: Apache-2.0
// The layout of DLPack's structures, as its specification describes them, and capsules of them.
#pragma once

#include "references.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace binding::dlpack {

enum DeviceType : int {
  cpu = 1,
  cuda = 2,
  cuda_host = 3,
  rocm = 10,
  rocm_host = 11,
  cuda_managed = 13
};
enum TypeCode : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  floating = 2,
  brain_float = 4,
  complex = 5,
  boolean = 6,
  float8_e4m3fn = 10,
  float8_e4m3fnuz = 11,
  float8_e5m2 = 12,
  float8_e5m2fnuz = 13,
  float8_e8m0fnu = 14
};

struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct Place {
  std::int32_t type;
  std::int32_t id;
};
struct Tensor {
  void* data;
  Place device;
  std::int32_t ndim;
  Type dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint64_t read_only_flag = 1;

/// The tensor in a capsule. @throws BufferError for a read-only one that is to be written
[[nodiscard]] const Tensor& tensor_of(const nb::object& capsule, bool is_written);
/// A capsule of an array, which keeps `owner`. The strides are in elements.
[[nodiscard]] nb::object make_capsule(void* data, Place device, Type type,
                                      const std::vector<std::int64_t>& shape,
                                      const std::vector<std::int64_t>& strides,
                                      std::shared_ptr<const void> owner, bool is_versioned);

}  // namespace binding::dlpack
