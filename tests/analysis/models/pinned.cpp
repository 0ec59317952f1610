// SPDX-License-Identifier: Apache-2.0
/// Checks of the pool of pinned memory: a block is handed out again only when every stream that
/// used it has passed. The streams write into the block as plain data, and so does its next user: a
/// block that is handed out too early is a race.
#include "memory/pinned_shelves.hpp"

#include "device.hpp"

namespace {

using namespace checks;
using model::expect;
using runnel::detail::PinnedBlock;
using runnel::detail::Slot;

constexpr size_t bytes = runnel::detail::smallest_block;

runnel::detail::PinnedShelves& shelves() { return runnel::detail::pinned_shelves(); }
runnel::detail::PinnedShelf& shelf() { return shelves().shelves_for(bytes, false).front(); }

struct World {
  World() {
    const model::Calm calm;
    expect(shelves().try_reserve(bytes), "there is no limit");
    shelves().add(*new PinnedBlock{{}, reinterpret_cast<std::uintptr_t>(block), bytes, &shelf()});
  }
  int* block = static_cast<int*>(::operator new(bytes));
  Slot& a = make_slot(1);
  Slot& b = make_slot(2);
};

/// The user of a block lets a stream write a number of it.
void write_in(World& w, Slot& slot, uint64_t id, int place = 0) {
  expect(shelves().note_use(w.block, sizeof(int), {&slot, id}), "the pool does not know its block");
  submit(slot.handle, [number = w.block + place] { *number = 1; });
}
int* take() {
  void* const idle = shelves().take_idle(shelf());
  return static_cast<int*>(idle != nullptr ? idle : shelves().take_complete(shelf(), 8));
}
void give_back(World& w) {
  expect(shelves().deallocate(w.block), "the pool did not take its block back");
}
/// Another user looks for a block, some times.
void try_to_use(World& w) {
  for (int i = 0; i < 3; ++i) {
    int* const block = take();
    if (block == nullptr) continue;
    expect(block == w.block, "the pool has another block");
    block[0] = block[1] = 2;
    give_back(w);
  }
}
/// In the end the block comes back.
void expect_block(World& w) {
  synchronize(w.a.handle);
  synchronize(w.b.handle);
  int* const block = take();
  expect(block == w.block, "the block was lost");
  block[0] = block[1] = 3;
}

void hand_out_again(World& w) {
  together([&] { write_in(w, w.a, 1), give_back(w); }, [&] { try_to_use(w); });
  expect_block(w);
}

void hand_out_after_two_streams(World& w) {
  together([&] { write_in(w, w.a, 1, 0), write_in(w, w.b, 2, 1), give_back(w); },
           [&] { try_to_use(w); });
  expect_block(w);
}

void hand_out_to_two(World& w) {
  {
    const model::Calm calm;
    write_in(w, w.a, 1);
    expect(shelves().deallocate(w.block), "the pool did not take its block back");
  }
  together([&] { try_to_use(w); }, [&] { try_to_use(w); });
  expect_block(w);
}

/// The stream ends while the block waits for it.
void stream_ends(World& w) {
  {
    const model::Calm calm;
    write_in(w, w.a, 1);
  }
  together([&] { give_back(w); }, [&] { retire_slot(&w.a); }, [&] { try_to_use(w); });
  expect_block(w);
}

/// Another thread's own default stream: only that thread can say how far it is.
void marks(World& w) {
  together(
      [&] {
        w.a.thread = runnel::detail::this_thread_id();
        w.a.is_default = true;
        write_in(w, w.a, 1);
        expect(shelves().deallocate(w.block), "the pool did not take its block back");
        repeat(2, [&] {
          mark_if_asked(w.a);
          sync::yield();
        });
        synchronize(w.a.handle);
        complete_if_asked(w.a);
      },
      [&] { try_to_use(w); });
}

}  // namespace

MODEL_CHECKS(CHECK(hand_out_again), CHECK(hand_out_after_two_streams), CHECK(hand_out_to_two),
             CHECK(stream_ends), CHECK(marks))
