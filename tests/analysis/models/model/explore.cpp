// SPDX-License-Identifier: Apache-2.0
/// Runs a check's schedules, counts them, and prints the one that failed.
#include "report.hpp"
#include "state.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace model {
namespace {

constexpr int all_preemptions = 1 << 20;
constexpr size_t max_choices = 4 * max_steps;

struct Settings {
  uint64_t schedules = 100000;
  uint64_t seed = 1;
  int bound = 2;
  std::vector<std::string> names;
  std::string replay;
  bool expects_failure = false;
};

/// What was explored of one check.
struct Result {
  uint64_t schedules = 0, exhaustive = 0, steps = 0, longest = 0;
  bool is_complete = false;  // every schedule within the bound was tried
  std::string failure;       // how to replay it
  std::map<std::string, uint64_t> outcomes;
};

void call_body(void*) { state->check->body(); }

/// One run, as `way`, `random`, `bound` and `choices` say.
void run(const Check& check) {
  forget_memory();
  ++state->run;
  state->threads = 0;
  state->steps = 0;
  state->time = TimePoint{} + std::chrono::hours{1};
  state->sc_time = 0;
  state->sc = {};
  state->preemptions = state->surprises = 0;
  state->failure = nullptr;
  state->blamed = {};
  state->outcome_length = 0;
  state->traced = 0;
  state->locations = 0;
  state->lowest = 0;
  state->taken = 0;
  state->check = &check;
  start_first(call_body, nullptr);
  state->current = -1;
}

void count(Result& result) {
  ++result.schedules;
  result.steps += state->steps;
  result.longest = std::max(result.longest, state->steps);
  ++result.outcomes[std::string(state->outcome, static_cast<size_t>(state->outcome_length))];
}

/// The next choices in order; false after the last.
bool advance_choices(std::vector<Choice>& choices) {
  while (!choices.empty() && choices.back().chosen + 1 == choices.back().count) choices.pop_back();
  if (choices.empty()) return false;
  ++choices.back().chosen;
  return true;
}

std::string text_of(const std::vector<Choice>& choices) {
  std::string text = "e" + std::to_string(state->bound) + ":";
  for (const Choice& each : choices) text += static_cast<char>('0' + each.chosen);
  return text;
}

/// All schedules with at most `bound` switches that no thread asked for, or the first `most` of
/// them. False if one failed.
bool run_exhaustively(const Check& check, int bound, uint64_t most, Result& result) {
  std::vector<Choice> choices;
  choices.reserve(max_choices);  // it must not grow in a run, whose memory is given up
  state->way = Way::exhaustive;
  state->bound = bound;
  state->choices = &choices;
  do {
    if (result.exhaustive == most) return true;
    run(check);
    count(result);
    ++result.exhaustive;
    if (state->failure != nullptr) {
      choices.resize(state->taken);
      result.failure = text_of(choices);
      return false;
    }
  } while (advance_choices(choices));
  result.is_complete = true;
  return true;
}

/// Prepares a random run, which its seed decides.
void seed_run(uint64_t seed, uint64_t usual_steps) {
  state->random = seed * 0x2545F4914F6CDD1Du + 1;
  const uint64_t way = random_below(10);
  state->way = way < 4 ? Way::priorities : way < 7 ? Way::sticky : Way::uniform;
  state->bound = 0;
  for (uint64_t& at : state->lowered_at) at = random_below(usual_steps + 1);
}

constexpr uint64_t usual_steps = 300;

/// False if a run failed.
bool run_randomly(const Check& check, uint64_t first_seed, uint64_t schedules, Result& result) {
  for (uint64_t seed = first_seed; seed < first_seed + schedules; ++seed) {
    seed_run(seed, usual_steps);
    run(check);
    count(result);
    if (state->failure == nullptr) continue;
    result.failure = "s" + std::to_string(seed);
    return false;
  }
  return true;
}

/// For a check that lists its outcomes: whether these and no others occurred.
bool outcomes_hold(const Check& check, const Result& result) {
  std::istringstream words{check.outcomes};
  std::vector<std::string> wanted;
  for (std::string word; words >> word;) wanted.push_back(word);
  bool hold = result.is_complete;
  if (!hold) std::printf("  not every schedule was tried\n");
  for (const std::string& each : wanted)
    if (result.outcomes.count(each) == 0)
      std::printf("  %s is allowed and was not seen\n", each.c_str()), hold = false;
  for (const auto& [each, times] : result.outcomes)
    if (std::find(wanted.begin(), wanted.end(), each) == wanted.end())
      std::printf("  %s is forbidden and was seen %lu times\n", each.c_str(), times), hold = false;
  return hold;
}

bool explore_one(const Check& check, const Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  Result result;
  if (check.outcomes != nullptr)
    run_exhaustively(check, all_preemptions, ~uint64_t{0}, result);
  else if (run_randomly(check, settings.seed, settings.schedules / 4 * 3, result) &&
           run_exhaustively(check, settings.bound, settings.schedules / 4, result) &&
           result.schedules < settings.schedules)
    run_randomly(check, settings.seed + settings.schedules, settings.schedules - result.schedules,
                 result);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "%-28s %8lu schedules, %7lu of them in order%s, %6.1f steps each (longest %lu), %.1f s: %s\n",
      check.name, result.schedules, result.exhaustive, result.is_complete ? " (all)" : "",
      static_cast<double>(result.steps) / static_cast<double>(result.schedules), result.longest,
      seconds, state->failure != nullptr ? state->failure : "nothing found");
  std::fflush(stdout);
  if (settings.expects_failure) return state->failure != nullptr;
  if (state->failure != nullptr) {
    print_failure(check, result.failure);
    return false;
  }
  return check.outcomes == nullptr || outcomes_hold(check, result);
}

/// Repeats the run that `text` describes, as a failure prints it.
bool replay(const Check& check, const std::string& text) {
  std::vector<Choice> choices;
  choices.reserve(max_choices);  // it must not grow in a run, whose memory is given up
  if (text[0] == 's') {
    seed_run(std::strtoull(text.c_str() + 1, nullptr, 10), usual_steps);
  } else {
    const size_t colon = text.find(':');
    for (const char digit : text.substr(colon + 1))
      choices.push_back({any_count, static_cast<uint8_t>(digit - '0')});
    state->way = Way::exhaustive;
    state->bound = std::atoi(text.c_str() + 1);
    state->choices = &choices;
  }
  run(check);
  print_failure(check, text);
  return state->failure == nullptr;
}

Settings read(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--schedules")
      settings.schedules = std::strtoull(value(), nullptr, 10);
    else if (word == "--seed")
      settings.seed = std::strtoull(value(), nullptr, 10);
    else if (word == "--bound")
      settings.bound = std::atoi(value());
    else if (word == "--expect-failure")
      settings.expects_failure = true;
    else if (word == "--replay")
      settings.replay = value();
    else
      settings.names.push_back(word);
  }
  return settings;
}

}  // namespace

int explore(int argc, char** argv, const Check* checks, size_t count) {
  const Settings settings = read(argc, argv);
  prepare_memory();
  size_t known = 0;
  bool passed = true;
  for (size_t i : range(count)) {
    const bool is_named = std::find(settings.names.begin(), settings.names.end(), checks[i].name) !=
                          settings.names.end();
    if (!settings.names.empty() && !is_named) continue;
    ++known;
    passed = (settings.replay.empty() ? explore_one(checks[i], settings)
                                      : replay(checks[i], settings.replay)) &&
             passed;
  }
  if (known == 0 || known < settings.names.size()) {
    std::printf("there is no such check; these are the checks:\n");
    for (size_t i : range(count)) std::printf("  %s\n", checks[i].name);
    return 2;
  }
  return passed ? 0 : 1;
}

}  // namespace model
