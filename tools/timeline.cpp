// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <string_view>

namespace tool {

namespace {

constexpr std::size_t max_chunks = 24;  // More would be too small to distinguish.
constexpr std::size_t max_lanes = 18;

constexpr double width = 1200, left = 150, right = 90, top = 112, lane_height = 30, lane_gap = 8,
                 bar_inset = 3;

struct Style {
  const char* colour;  // Distinguishable in greyscale and with colour blindness.
  const char* ink;
};
constexpr Style styles[step_count] = {{"#c9c9c9", "#222"},
                                      {"#2f6db3", "#fff"},
                                      {"#f0a202", "#222"},
                                      {"#147a54", "#fff"},
                                      {"#8f8f8f", "#222"}};
constexpr const Style& style_of(Step step) { return styles[static_cast<std::size_t>(step)]; }
constexpr bool on_device(Step step) { return step != Step::read && step != Step::write; }

[[gnu::format(printf, 2, 3)]] void append(std::string& to, const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  to += text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      // A file name may contain bytes that are not text and would make the image invalid.
      out +=
          static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  }
  return out;
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, for about ten ticks in the range.
double tick_step(double range) {
  const double rough = range / 10;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const std::vector<Lane>& lanes, std::size_t total_chunks, const TimelineText& text)
      : lanes_{lanes},
        total_chunks_{total_chunks},
        text_{text},
        shown_lanes_{std::min(lanes.size(), max_lanes)} {
    choose_excerpt();
    height_ = lane_y(shown_lanes_) + 62;
  }

  std::string draw() {
    append(svg_,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
           "font-family=\"sans-serif\" font-size=\"13\">\n",
           width, height_);
    svg_ +=
        "<defs><pattern id=\"idle\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\">"
        "<rect width=\"7\" height=\"7\" fill=\"#f6f6f6\"/><rect width=\"2\" height=\"7\" "
        "fill=\"#e2e2e2\"/></pattern></defs>\n";
    append(svg_, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height_);
    draw_title();
    draw_legend();
    for (std::size_t lane = 0; lane < shown_lanes_; ++lane) draw_lane(lane);
    draw_axis();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  void choose_excerpt() {
    std::size_t chunks = 0;
    for (const Lane& lane : lanes_)
      for (const Bar& bar : lane.bars) chunks = std::max(chunks, bar.chunk + 1);
    if (chunks == 0) return;
    const std::size_t shown = std::min(chunks, max_chunks);
    first_ = (chunks - shown) / 2;
    last_ = first_ + shown - 1;
    is_whole_run_ = shown == total_chunks_;
    has_chunks_ = true;
    start_ = is_whole_run_ ? 0 : std::numeric_limits<double>::max();
    stop_ = 0;
    for (const Lane& lane : lanes_)
      for (const Bar& bar : lane.bars) {
        if (bar.chunk < first_ || bar.chunk > last_) continue;
        if (!is_whole_run_ && bar.step == Step::copy_in) start_ = std::min(start_, bar.start_ms);
        if (is_whole_run_ || on_device(bar.step)) stop_ = std::max(stop_, bar.stop_ms);
      }
  }

  [[nodiscard]] double range() const { return std::max(stop_ - start_, 1e-6); }
  [[nodiscard]] double x(double ms) const {
    return left + (width - left - right) * (ms - start_) / range();
  }
  [[nodiscard]] static double lane_y(std::size_t lane) {
    return top + static_cast<double>(lane) * (lane_height + lane_gap);
  }

  void draw_title() {
    svg_ += "<text x=\"20\" y=\"30\" font-size=\"19\" font-weight=\"bold\">" +
            escaped(text_.title) + "</text>\n";
    svg_ += "<text x=\"20\" y=\"52\" fill=\"#444\">" + escaped(text_.subtitle) + "; " + shown() +
            "</text>\n";
  }

  [[nodiscard]] std::string shown() const {
    std::string out;
    if (!has_chunks_) return "there was nothing to do";
    if (is_whole_run_)
      out = "shown: all of it";
    else
      append(out, "shown: an excerpt, chunks %zu to %zu of %zu", first_, last_, total_chunks_);
    if (shown_lanes_ < lanes_.size())
      append(out, ", %zu of %zu lanes", shown_lanes_, lanes_.size());
    return out;
  }

  [[nodiscard]] bool has(Step step) const {
    return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return std::any_of(lane.bars.begin(), lane.bars.end(),
                         [&](const Bar& bar) { return bar.step == step; });
    });
  }

  void draw_legend() {
    double at = left;
    const auto entry = [&](const char* fill, const char* name) {
      append(svg_,
             "<rect x=\"%.1f\" y=\"70\" width=\"16\" height=\"16\" fill=\"%s\"/><text x=\"%.1f\" "
             "y=\"83\">%s</text>\n",
             at, fill, at + 22, name);
      at += 40 + 7.2 * static_cast<double>(std::string_view{name}.size());
    };
    for (std::size_t step = 0; step < step_count; ++step)
      if (has(static_cast<Step>(step)))
        entry(styles[step].colour, name_of(static_cast<Step>(step)));
    entry("url(#idle)", "idle");
    append(svg_, "<text x=\"%.1f\" y=\"83\" fill=\"#444\">numbers: chunks</text>\n", at);
    append(svg_, "<text x=\"%.1f\" y=\"83\" fill=\"#444\" text-anchor=\"end\">busy</text>\n",
           width - 20);
  }

  void draw_axis() {
    const double bottom = lane_y(shown_lanes_);
    const double step = tick_step(range());
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step))));
    // Multiply instead of adding up, so that rounding errors do not accumulate.
    for (double n = std::ceil(start_ / step); n * step <= stop_; ++n) {
      append(svg_,
             "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#000\" "
             "stroke-opacity=\"0.12\"/>",
             x(n * step), top - 6, x(n * step), bottom + 4);
      append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#444\">%.*f</text>\n",
             x(n * step), bottom + 20, decimals, n * step);
    }
    append(svg_,
           "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">time since the start, ms</text>\n",
           (left + width - right) / 2, bottom + 44);
  }

  void draw_lane(std::size_t lane) {
    append(svg_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"url(#idle)\"/>",
           left, lane_y(lane), width - left - right, lane_height);
    append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left - 10,
           lane_y(lane) + lane_height / 2 + 5, lanes_[lane].name.c_str());
    double busy = 0;
    for (const Bar& bar : lanes_[lane].bars) busy += draw_bar(lane, bar);
    if (has_chunks_)
      append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#444\">%.0f %%</text>\n",
             width - 20, lane_y(lane) + lane_height / 2 + 5, 100 * busy / range());
  }

  /// Returns the length of the bar within the image, in milliseconds.
  double draw_bar(std::size_t lane, const Bar& bar) {
    const double from = std::max(bar.start_ms, start_), to = std::min(bar.stop_ms, stop_);
    if (to <= from) return 0;
    const double y = lane_y(lane) + bar_inset, height = lane_height - 2 * bar_inset;
    append(svg_,
           "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"#fff\" "
           "stroke-width=\"0.5\">",
           x(from), y, std::max(x(to) - x(from), 0.6), height, style_of(bar.step).colour);
    append(svg_, "<title>chunk %zu, %s: %.3f ms from %.3f ms</title></rect>\n", bar.chunk,
           name_of(bar.step), bar.stop_ms - bar.start_ms, bar.start_ms);

    const std::string number = std::to_string(bar.chunk);
    if (x(to) - x(from) >= 8 * static_cast<double>(number.size()) + 4)
      append(svg_,
             "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"12\" "
             "fill=\"%s\">%s</text>\n",
             (x(from) + x(to)) / 2, y + height / 2 + 4, style_of(bar.step).ink, number.c_str());
    return to - from;
  }

  const std::vector<Lane>& lanes_;
  std::size_t total_chunks_;
  const TimelineText& text_;
  std::size_t shown_lanes_;
  std::size_t first_ = 0, last_ = 0;
  bool is_whole_run_ = false;
  bool has_chunks_ = false;
  double start_ = 0, stop_ = 1;
  double height_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw_timeline(const std::vector<Lane>& lanes, std::size_t total_chunks,
                          const TimelineText& text) {
  return Picture{lanes, total_chunks, text}.draw();
}

}  // namespace tool
