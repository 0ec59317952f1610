// SPDX-License-Identifier: Apache-2.0
/// Writes JSON, with the commas and quotes between the values.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tool {

class Json {
 public:
  void open(char bracket) {
    comma();
    text_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    text_ += bracket;
    first_ = false;
  }
  void key(std::string_view name) {
    string(name);
    text_ += ": ";
    first_ = true;
  }
  void string(std::string_view value) {
    comma();
    text_ += '"';
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        (text_ += '\\') += c;
      else
        text_ += byte < 0x20 || byte >= 0x7f ? '?' : c;  // a file name may contain bytes that are no text
    }
    text_ += '"';
  }
  void number(double value) {
    comma();
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.12g", value);
    text_ += digits;
  }
  /// A number that is text already.
  void digits(std::string_view number) {
    comma();
    text_ += number;
  }
  void field(std::string_view name, std::string_view value) {
    key(name);
    string(value);
  }
  void field(std::string_view name, double value) {
    key(name);
    number(value);
  }
  void line() { text_ += '\n'; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void comma() {
    if (!first_) text_ += ", ";
    first_ = false;
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace tool
