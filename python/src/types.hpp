// SPDX-License-Identifier: Apache-2.0
// The types of arrays' elements, as the libraries name them.
#pragma once

#include "dlpack.hpp"

#include <string>
#include <string_view>

namespace binding {

struct NamedType {
  const char* name;
  dlpack::Type type;
  const char* letters;  // as __cuda_array_interface__ writes it; null where it cannot
};
[[nodiscard]] bool is_type(const std::string& name);
/// The type of that name, as "float32". @throws ValueError
[[nodiscard]] const NamedType& find_type(const std::string& name);
/// The same by the letters, as "<f4". Null for another type.
[[nodiscard]] const NamedType* type_of_letters(std::string_view letters);
/// The same by a buffer's format, as "f"; null means bytes.
[[nodiscard]] const NamedType* type_of_format(const char* format, std::size_t item_bytes);
[[nodiscard]] const NamedType* type_of_dlpack(dlpack::Type type);
/// The same by a dtype of NumPy, torch or CuPy.
[[nodiscard]] const NamedType* type_of_dtype(nb::handle dtype);
/// "float32" for that text, and for the types that NumPy and torch have of that name.
[[nodiscard]] std::string name_of_type(nb::handle type);

/// The type of bytes, as which memory goes that has no other type.
[[nodiscard]] const NamedType* bytes_type();
/// Whether an array of one of the two takes elements of the other: of one type, or of a type that
/// NumPy lacks and a number of its size, as bfloat16 and uint16. Null: a type without a name.
[[nodiscard]] bool have_one_type(const NamedType* a, const NamedType* b);

}  // namespace binding
