/* The models of work.h without a GPU. A kernel is a sleep, and kernels of all streams run one at a
 * time in order of arrival, about as on a GPU that each of them fills. Streams have no priority. */
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "work.h"

static std::mutex device;
static std::condition_variable ended;
static unsigned long arrived, running;

void work_open()
{
}

void *work_stream(int)
{
    return nullptr;
}

void work_run(enum work_kind kind, unsigned n, void *)
{
    const unsigned kernels[WORK_KINDS] = {2, 10, 6};
    for (unsigned i = 0; i < kernels[kind]; i++) {
        std::unique_lock<std::mutex> guard(device);
        unsigned long mine = arrived++;
        ended.wait(guard, [&] { return running == mine; });
        guard.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200 + 25 * n));
        guard.lock();
        running++;
        ended.notify_all();
    }
}
