// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <span>

namespace tool {

namespace {

constexpr std::size_t most_chunks = 24;  // more cannot be told apart on a page
constexpr std::size_t most_lanes = 16;

constexpr double width = 1200, left = 110, right = 30, top = 112, lane_height = 30, lane_gap = 8, bar_inset = 3;

struct Kind {
  const char* name;
  const char* colour;  // told apart by the colour-blind, and in grey
  const char* ink;
  Interval ChunkTimes::*when;
};
constexpr Kind kinds[] = {
    {"read from the file", "#c9c9c9", "#222", &ChunkTimes::read}, {"transfer in", "#2f6db3", "#fff", &ChunkTimes::in},
    {"compute", "#f0a202", "#222", &ChunkTimes::compute},         {"transfer out", "#147a54", "#fff", &ChunkTimes::out},
    {"write to the file", "#8f8f8f", "#222", &ChunkTimes::write},
};
constexpr const Kind& reading = kinds[0];
constexpr const Kind& writing = kinds[4];
constexpr std::span<const Kind> on_stream{kinds + 1, 3};

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
      // A file's name may hold bytes that are no text; a picture that does not open helps nobody.
      out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  }
  return out;
}

/// 1, 2 or 5 times a power of ten: about ten steps in the range.
double tick_step(double range) {
  const double rough = range / 10;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const std::vector<ChunkTimes>& times, std::size_t total_chunks, const TimelineText& text)
      : times_{times}, total_chunks_{total_chunks}, text_{text} {
    choose_excerpt();
    for (const ChunkTimes& chunk : times) streams_ = std::max(streams_, chunk.stream + 1);
    lanes_ = std::min(streams_, most_lanes);
    height_ = lane_y(lanes_ + 2) + 62;
  }

  std::string draw() {
    append(svg_, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"13\">\n",
           width, height_);
    append(svg_, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height_);
    draw_title();
    draw_legend();
    draw_axis();
    draw_lane(0, "file read");
    for (std::size_t lane = 0; lane < lanes_; ++lane) draw_lane(lane + 1, ("stream " + std::to_string(lane)).c_str());
    draw_lane(lanes_ + 1, "file write");
    for (const ChunkTimes& chunk : times_) {
      draw_bar(0, chunk, reading);
      if (chunk.stream < lanes_)
        for (const Kind& kind : on_stream) draw_bar(chunk.stream + 1, chunk, kind);
      draw_bar(lanes_ + 1, chunk, writing);
    }
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  void choose_excerpt() {
    if (times_.empty()) return;
    const std::size_t shown = std::min(times_.size(), most_chunks);
    first_ = (times_.size() - shown) / 2;
    last_ = first_ + shown - 1;
    const bool all = shown == total_chunks_;
    window_ = all ? Interval{0, 0} : Interval{times_[first_].in.start, 0};
    for (std::size_t i = first_; i <= last_; ++i)
      window_.stop = std::max({window_.stop, times_[i].out.stop, all ? times_[i].write.stop : 0});
  }

  [[nodiscard]] double x(double ms) const {
    return left + (width - left - right) * (ms - window_.start) / std::max(window_.length(), 1e-6);
  }
  [[nodiscard]] static double lane_y(std::size_t lane) { return top + static_cast<double>(lane) * (lane_height + lane_gap); }

  void draw_title() {
    svg_ += "<text x=\"20\" y=\"30\" font-size=\"19\" font-weight=\"bold\">" + escaped(text_.title) + "</text>\n";
    svg_ += "<text x=\"20\" y=\"52\" fill=\"#444\">" + escaped(text_.subtitle) + "; " + shown() + "</text>\n";
  }

  [[nodiscard]] std::string shown() const {
    std::string out;
    if (times_.empty()) return "there was nothing to do";
    if (times_.size() == total_chunks_ && last_ - first_ + 1 == times_.size())
      out = "shown: all of it";
    else
      append(out, "shown: an excerpt, chunks %zu to %zu of %zu", first_, last_, total_chunks_);
    if (lanes_ < streams_) append(out, ", streams 0 to %zu of %zu", lanes_ - 1, streams_);
    return out;
  }

  void draw_legend() {
    double at = left;
    for (const Kind& kind : kinds) {
      append(svg_, "<rect x=\"%.1f\" y=\"70\" width=\"16\" height=\"16\" fill=\"%s\"/><text x=\"%.1f\" y=\"83\">%s</text>\n", at,
             kind.colour, at + 22, kind.name);
      at += 160;
    }
    append(svg_, "<text x=\"%.1f\" y=\"83\" fill=\"#444\">numbers: chunks; empty: idle</text>\n", at);
  }

  void draw_axis() {
    const double bottom = lane_y(lanes_ + 2);
    const double step = tick_step(std::max(window_.length(), 1e-6));
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step))));
    // Counted, not added up: the label of the hundredth tick is as exact as the first.
    for (double n = std::ceil(window_.start / step); n * step <= window_.stop; ++n) {
      append(svg_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", x(n * step), top - 6, x(n * step),
             bottom + 4);
      append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#444\">%.*f</text>\n", x(n * step), bottom + 20, decimals,
             n * step);
    }
    append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">time since the start, ms</text>\n", (left + width - right) / 2,
           bottom + 44);
  }

  void draw_lane(std::size_t lane, const char* name) {
    append(svg_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#000\" fill-opacity=\"0.04\"/>", left, lane_y(lane),
           width - left - right, lane_height);
    append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left - 10, lane_y(lane) + lane_height / 2 + 5, name);
  }

  void draw_bar(std::size_t lane, const ChunkTimes& chunk, const Kind& kind) {
    const Interval when = chunk.*kind.when;
    const double from = std::max(when.start, window_.start), to = std::min(when.stop, window_.stop);
    if (to <= from) return;
    const double y = lane_y(lane) + bar_inset, height = lane_height - 2 * bar_inset;
    append(svg_, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\">", x(from), y,
           std::max(x(to) - x(from), 0.6), height, kind.colour);
    append(svg_, "<title>chunk %zu, %s: %.3f ms from %.3f ms</title></rect>\n", chunk.chunk, kind.name, when.length(), when.start);

    const std::string number = std::to_string(chunk.chunk);
    if (x(to) - x(from) < 8 * static_cast<double>(number.size()) + 4) return;
    append(svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"12\" fill=\"%s\">%s</text>\n", (x(from) + x(to)) / 2,
           y + height / 2 + 4, kind.ink, number.c_str());
  }

  const std::vector<ChunkTimes>& times_;
  std::size_t total_chunks_;
  const TimelineText& text_;
  std::size_t first_ = 0, last_ = 0, streams_ = 0, lanes_ = 0;
  Interval window_{0, 1};
  double height_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw_timeline(const std::vector<ChunkTimes>& times, std::size_t total_chunks, const TimelineText& text) {
  return Picture{times, total_chunks, text}.draw();
}

}  // namespace tool
