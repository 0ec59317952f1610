// SPDX-License-Identifier: Apache-2.0
#include "json_value.hpp"

#include "failure.hpp"

#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

namespace tool {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_{text} {}

  [[nodiscard]] JsonValue whole() {
    JsonValue result = value(0);
    skip_space();
    if (at_ != text_.size()) fail("more text");
    return result;
  }

 private:
  static constexpr int most_depth = 32;

  [[noreturn]] void fail(const char* what) const {
    throw Failure(std::string{what} + " at byte " + std::to_string(at_) + ", which is no JSON");
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view{" \t\r\n"}.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  /// Whether the next character is this one; if so, skips it.
  [[nodiscard]] bool next_is(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void require(char c) {
    if (!next_is(c)) fail("something else than was expected");
  }

  [[nodiscard]] JsonValue value(int depth) {
    if (depth > most_depth) fail("too many brackets");
    if (next_is('{')) return object(depth);
    if (next_is('[')) return array(depth);
    if (next_is('"')) return {string()};
    for (const auto& [word, meaning] : {std::pair<std::string_view, JsonValue>{"null", {}}, {"true", {true}}, {"false", {false}}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return meaning;
      }
    return {number()};
  }
  [[nodiscard]] JsonValue object(int depth) {
    JsonValue::Object members;
    if (next_is('}')) return {std::move(members)};
    do {
      require('"');
      std::string key = string();
      require(':');
      members.insert_or_assign(std::move(key), value(depth + 1));
    } while (next_is(','));
    require('}');
    return {std::move(members)};
  }
  [[nodiscard]] JsonValue array(int depth) {
    JsonValue::Array elements;
    if (next_is(']')) return {std::move(elements)};
    do elements.push_back(value(depth + 1));
    while (next_is(','));
    require(']');
    return {std::move(elements)};
  }
  /// The rest of a string, after its first quote.
  [[nodiscard]] std::string string() {
    std::string result;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && ++at_ == text_.size()) break;
      result += text_[at_];  // Json escapes only quotes and backslashes
    }
    if (at_ >= text_.size()) fail("the end of the text, within a string,");
    ++at_;
    return result;
  }
  [[nodiscard]] double number() {
    double result = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result);
    if (error != std::errc{}) fail("something else than was expected");
    at_ = static_cast<std::size_t>(end - text_.data());
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const JsonValue& JsonValue::at(std::string_view key) const {
  static const JsonValue none;
  const auto* const members = std::get_if<Object>(&value);
  if (members == nullptr) return none;
  const auto place = members->find(key);
  return place == members->end() ? none : place->second;
}

double JsonValue::number() const {
  const auto* const own = std::get_if<double>(&value);
  return own != nullptr ? *own : std::numeric_limits<double>::quiet_NaN();
}

std::string JsonValue::text() const {
  const auto* const own = std::get_if<std::string>(&value);
  return own != nullptr ? *own : "";
}

const JsonValue::Array& JsonValue::elements() const {
  static const Array none;
  const auto* const own = std::get_if<Array>(&value);
  return own != nullptr ? *own : none;
}

JsonValue parse_json(std::string_view text) { return Parser{text}.whole(); }

}  // namespace tool
