// SPDX-License-Identifier: Apache-2.0
#include "types.hpp"

#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace binding {
namespace {

constexpr NamedType named_types[] = {
    {"uint8", {dlpack::unsigned_integer, 8, 1}, "|u1"},
    {"bool", {dlpack::boolean, 8, 1}, "|b1"},
    {"int8", {dlpack::signed_integer, 8, 1}, "|i1"},
    {"int16", {dlpack::signed_integer, 16, 1}, "<i2"},
    {"int32", {dlpack::signed_integer, 32, 1}, "<i4"},
    {"int64", {dlpack::signed_integer, 64, 1}, "<i8"},
    {"uint16", {dlpack::unsigned_integer, 16, 1}, "<u2"},
    {"uint32", {dlpack::unsigned_integer, 32, 1}, "<u4"},
    {"uint64", {dlpack::unsigned_integer, 64, 1}, "<u8"},
    {"float16", {dlpack::floating, 16, 1}, "<f2"},
    {"float32", {dlpack::floating, 32, 1}, "<f4"},
    {"float64", {dlpack::floating, 64, 1}, "<f8"},
    {"complex64", {dlpack::complex, 64, 1}, "<c8"},
    {"complex128", {dlpack::complex, 128, 1}, "<c16"},
    {"bfloat16", {dlpack::brain_float, 16, 1}, nullptr},
    {"float8_e4m3fn", {dlpack::float8_e4m3fn, 8, 1}, nullptr},
    {"float8_e4m3fnuz", {dlpack::float8_e4m3fnuz, 8, 1}, nullptr},
    {"float8_e5m2", {dlpack::float8_e5m2, 8, 1}, nullptr},
    {"float8_e5m2fnuz", {dlpack::float8_e5m2fnuz, 8, 1}, nullptr},
    {"float8_e8m0fnu", {dlpack::float8_e8m0fnu, 8, 1}, nullptr},
};

template <class F>
[[nodiscard]] const NamedType* find(F&& is_it) {
  const auto* const found = std::find_if(std::begin(named_types), std::end(named_types), is_it);
  return found == std::end(named_types) ? nullptr : found;
}
[[nodiscard]] const NamedType* find_name(std::string_view name) {
  return find([&](const NamedType& each) { return name == each.name; });
}

}  // namespace

bool is_type(const std::string& name) { return find_name(name) != nullptr; }

const NamedType& find_type(const std::string& name) {
  if (const NamedType* const found = find_name(name)) return *found;
  refuse(
      PyExc_ValueError,
      "a block has no element type '%s': it has those as 'float32', 'int64', 'uint8', 'bfloat16', "
      "'bool'. An array of other elements goes as bytes: x.view('uint8')",
      name.c_str());
}

const NamedType* type_of_letters(std::string_view letters) {
  return find([&](const NamedType& each) { return each.letters && letters == each.letters; });
}

const NamedType* type_of_dlpack(dlpack::Type type) {
  return find([&](const NamedType& each) {
    return each.type.code == type.code && each.type.bits == type.bits && type.lanes == 1;
  });
}

const NamedType* type_of_format(const char* format, std::size_t item_bytes) {
  if (format == nullptr) return bytes_type();
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const auto made = [&](dlpack::TypeCode code) {
    return type_of_dlpack({code, static_cast<std::uint8_t>(8 * item_bytes), 1});
  };
  if (std::strcmp(format, "Zf") == 0 || std::strcmp(format, "Zd") == 0)
    return made(dlpack::complex);
  if (*format == '\0' || format[1] != '\0') return nullptr;
  if (*format == 'c') return bytes_type();
  if (*format == '?') return made(dlpack::boolean);
  if (std::strchr("efd", *format) != nullptr) return made(dlpack::floating);
  if (std::strchr("bhilqn", *format) != nullptr) return made(dlpack::signed_integer);
  if (std::strchr("BHILQN", *format) != nullptr) return made(dlpack::unsigned_integer);
  return nullptr;
}

std::string name_of_type(nb::handle type) {
  const nb::object name = PyType_Check(type.ptr()) != 0 ? nb::getattr(type, "__name__")
                                                        : nb::getattr(type, "name", nb::str(type));
  const std::string text = nb::cast<std::string>(nb::str(name));
  return text.rfind("torch.", 0) == 0 ? text.substr(6) : text;
}

const NamedType* type_of_dtype(nb::handle dtype) {
  // A dtype is asked for at each copy, and its name takes a microsecond. Only types with a name
  // here are kept, of which each library has one object, so that there are few.
  static PyObject* const known = PyDict_New();
  check(known == nullptr);
  if (PyObject* const place = PyDict_GetItemWithError(known, dtype.ptr()))
    return &named_types[PyLong_AsSize_t(place)];
  check(PyErr_Occurred() != nullptr);
  const nb::object is_native = nb::getattr(dtype, "isnative", nb::none());
  if (is_native.is(nb::handle(Py_False))) return nullptr;
  const NamedType* const found = find_name(name_of_type(dtype));
  if (found == nullptr) return nullptr;
  const nb::int_ place{found - named_types};
  check(PyDict_SetItem(known, dtype.ptr(), place.ptr()) != 0);
  return found;
}

const NamedType* bytes_type() { return &named_types[0]; }

bool have_one_type(const NamedType* a, const NamedType* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || a->type.bits != b->type.bits) return false;
  const auto stands_for = [](const NamedType* number, const NamedType* other) {
    return number->type.code == dlpack::unsigned_integer && other->letters == nullptr;
  };
  return stands_for(a, b) || stands_for(b, a);
}

}  // namespace binding
