/* libcede for C++17: scopes. cede/scope.h describes every call; see also cede/cede.hpp. A task is
 * any callable. It fails by an exception, or by returning an int or an enum (such as
 * CUresult) that is not 0, or a std::error_code. */
#ifndef CEDE_SCOPE_HPP
#define CEDE_SCOPE_HPP

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cede/error.hpp"
#include "cede/lease.hpp"
#include "cede/scope.h"

namespace cede
{

/* timeout: after which the scope ends; timeout_now refuses every task. The destructor cancels the
 * scope unless it was joined, and waits for running tasks. Tasks use the scope by reference, so it
 * must not be moved once it has tasks. */
class scope
{
  public:
    explicit scope(unsigned threads, microseconds timeout = timeout_forever)
        : scope(nullptr, threads, timeout)
    {
    }
    /* A scope within another is cancelled with its parent, and has to end before that is joined. */
    scope(scope &parent, unsigned threads, microseconds timeout = timeout_forever)
        : scope(&parent, threads, timeout)
    {
    }
    [[nodiscard]] static std::optional<scope> try_open(scope *parent, unsigned threads,
                                                       microseconds timeout = timeout_forever,
                                                       std::error_code *why = nullptr) noexcept
    {
        int r;
        auto s = open(parent, threads, timeout, r);
        if (detail::failed(r, why))
            return std::nullopt;
        return scope(std::move(s));
    }
    scope(scope &&) noexcept = default;
    scope &operator=(scope &&) noexcept = default;

    /* Adds a task, from any thread and from tasks. ECANCELED: the scope has ended. In place of that
     * the thread that opened the scope waits for the tasks, as it leaves the block, and gets what
     * join() throws. */
    template <class F> void fork(F &&f)
    {
        const std::error_code why = try_fork(std::forward<F>(f));
        if (!why)
            return;
        const error ended(-why.value(), ::cede_error_text());
        if (why.value() == ECANCELED && s_->opener == std::this_thread::get_id() &&
            joined() != -EDEADLK)
            join();
        throw ended;
    }
    /* Throws only what copying or moving f throws. */
    template <class F> [[nodiscard]] std::error_code try_fork(F &&f)
    {
        using task = task_of<std::decay_t<F>>;
        if (!s_)
            return detail::code(::cede_scope_fork(nullptr, run, nullptr));
        std::unique_ptr<task> t(new (std::nothrow) task(s_.get(), std::forward<F>(f)));
        if (!t)
            return detail::code(-ENOMEM);
        /* The lock keeps the task from ending before it is in the list. */
        std::lock_guard<std::mutex> guard(s_->lock);
        int r = ::cede_scope_fork(s_->c, run, static_cast<any_task *>(t.get()));
        if (r == 0)
            s_->add(t.release());
        return detail::code(r);
    }

    /* Waits until all tasks have ended. Throws the exception of the task that failed first, or else
     * an error: its errno value, ECANCELED or ETIMEDOUT. EDEADLK: a task called this. */
    void join()
    {
        int r = joined();
        if (r < 0 && r != -EDEADLK && s_->thrown)
            std::rethrow_exception(s_->thrown);
        detail::check(r);
    }
    [[nodiscard]] std::error_code try_join() noexcept
    {
        return detail::code(joined());
    }
    void cancel() noexcept
    {
        ::cede_scope_cancel(handle());
    }
    bool cancelled() const noexcept
    {
        return ::cede_scope_cancelled(handle()) != 0;
    }

    ::cede_scope *handle() const noexcept
    {
        return s_ ? s_->c : nullptr;
    }

  private:
    struct state;
    struct any_task {
        state *in;
        any_task *next = nullptr, **link = nullptr; /* link: the pointer to this task */
        int (*call)(any_task *);
        void (*destroy)(any_task *) noexcept;
    };
    template <class F> struct task_of : any_task {
        template <class G> task_of(state *s, G &&g) : f(std::forward<G>(g))
        {
            in = s;
            call = [](any_task *t) { return detail::result_of(static_cast<task_of *>(t)->f); };
            destroy = [](any_task *t) noexcept { delete static_cast<task_of *>(t); };
        }
        F f;
    };
    /* The list of tasks that may still run, since libcede drops tasks that never begin. */
    struct state {
        ::cede_scope *c = nullptr;
        std::mutex lock;
        any_task *first = nullptr;
        std::exception_ptr thrown;
        const std::thread::id opener = std::this_thread::get_id();

        void add(any_task *t) noexcept
        {
            t->next = first;
            t->link = &first;
            if (first)
                first->link = &t->next;
            first = t;
        }
        static void drop(any_task *t) noexcept
        {
            *t->link = t->next;
            if (t->next)
                t->next->link = t->link;
        }
        void drop_all() noexcept
        {
            for (;;) {
                any_task *t;
                {
                    std::lock_guard<std::mutex> guard(lock);
                    if (!(t = first))
                        return;
                    drop(t);
                }
                t->destroy(t);
            }
        }
    };
    struct closer : detail::process {
        void operator()(state *s) const noexcept
        {
            if (!here())
                return;
            ::cede_scope_cancel(s->c);
            /* A scope that one of its tasks destroys cannot wait for that task, so it stays. */
            if (::cede_scope_close(s->c) == -EDEADLK)
                return;
            s->drop_all();
            delete s;
        }
    };
    using owner = std::unique_ptr<state, closer>;

    explicit scope(owner s) noexcept : s_(std::move(s))
    {
    }
    scope(const scope *parent, unsigned threads, microseconds timeout)
    {
        int r;
        if (parent && !parent->s_)
            throw error(-EINVAL, "cede_scope_open: the parent is empty");
        s_ = open(parent, threads, timeout, r);
        detail::check(r);
    }
    static owner open(const scope *parent, unsigned threads, microseconds timeout, int &r) noexcept
    {
        owner s(new (std::nothrow) state);
        r = !s                      ? -ENOMEM
            : parent && !parent->s_ ? -EINVAL
                                    : ::cede_scope_open(&s->c, parent ? parent->handle() : nullptr,
                                                        threads, timeout.count());
        if (r < 0 && s)
            delete s.release(); /* no scope to close, and no text of that */
        return s;
    }
    int joined() noexcept
    {
        int r = ::cede_scope_join(handle());
        if (s_ && r != -EDEADLK)
            s_->drop_all();
        return r;
    }
    static int run(::cede_scope *c, void *arg) noexcept
    {
        any_task *t = static_cast<any_task *>(arg);
        state *s = t->in;
        int r;
        try {
            r = t->call(t);
        } catch (...) {
            r = detail::current_errno();
            std::lock_guard<std::mutex> guard(s->lock);
            if (!s->thrown && !::cede_scope_cancelled(c)) /* later ones may follow from the first */
                s->thrown = std::current_exception();
        }
        {
            std::lock_guard<std::mutex> guard(s->lock);
            state::drop(t);
        }
        t->destroy(t);
        return r;
    }
    owner s_;
};

} // namespace cede

#endif
