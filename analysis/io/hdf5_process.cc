// hdf5_process.cc: see hdf5_process.h.
#include "analysis/io/hdf5_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "analysis/io/hdf5_worker.h"
#include "analysis/io/message.h"

namespace fp4scope {
namespace {

// A directory may hold thousands of files; their processes are started when they are read and
// stopped, the oldest first, beyond this number.
constexpr std::size_t kMostProcesses = 4;
// The listing of a file on a slow disk. Its processor time is limited where it runs.
constexpr std::chrono::seconds kListingPatience{300};
// How soon a request to stop is noticed.
constexpr int kStopMilliseconds = 50;

std::mutex running_mutex;
std::vector<Hdf5Process*> running;  // oldest first

// How a process that should live on ended.
std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return "ended";
  switch (WTERMSIG(status)) {
    case SIGXCPU:
      return "did not come to an end";
    case SIGKILL:
      return "was killed (out of memory?)";
    default: {
      const char* name = ::sigabbrev_np(WTERMSIG(status));
      return std::string("crashed (SIG") + (name != nullptr ? name : "?") + ")";
    }
  }
}

}  // namespace

Hdf5Process::~Hdf5Process() {
  {
    const std::lock_guard lock(running_mutex);
    std::erase(running, this);
  }
  stop();
}

// Stops processes of other files that nobody is reading from. With running_mutex held.
void Hdf5Process::make_room() {
  for (std::size_t i = 0; i < running.size() && running.size() >= kMostProcesses;) {
    Hdf5Process& other = *running[i];
    // Its reader holds the lock and may be waiting for running_mutex.
    if (other.mutex_.try_lock()) {
      other.stop();
      other.mutex_.unlock();
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void Hdf5Process::start() {
  const auto refuse = [&](const char* what) {
    const int error = errno;
    stop();
    throw Error(ErrorKind::kData,
                fmt::format("{}: cannot start a process for the HDF5 library: {}: "
                            "{}",
                            printable(file_->path()), what, system_message(error)));
  };
  {
    const std::lock_guard lock(running_mutex);
    std::erase(running, this);
    make_room();
    running.push_back(this);
  }
  void* window = ::mmap(nullptr, static_cast<std::size_t>(kHdf5Window), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (window == MAP_FAILED) refuse("memory");
  window_ = static_cast<unsigned char*>(window);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) refuse("socket");
  socket_ = ends[0];
  // Handlers of this program must not run in the child.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    serve_hdf5(ends[1], *file_, window_);
    // Without the exit handlers of this program, and without its buffers written twice.
    ::kill(::getpid(), SIGKILL);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[1]);
  if (child < 0) refuse("fork");
  process_ = child;
}

void Hdf5Process::stop() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = -1;
  if (window_ != nullptr) ::munmap(window_, static_cast<std::size_t>(kHdf5Window));
  window_ = nullptr;
}

void Hdf5Process::died(int status, const std::string& doing) const {
  file_->check();  // a file that was cut under the library is no damage of its own
  const std::string message = fmt::format("{}: the HDF5 library {} while {}",
                                          printable(file_->path()), end_text(status), doing);
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
    throw Hdf5Crash(message + "; the file may be damaged");
  }
  throw Error(ErrorKind::kData, message);
}

void Hdf5Process::fail(const Hdf5Reply& reply, const std::string& doing) const {
  std::string reason;
  if (reply.bytes >= 0 && reply.bytes <= kHdf5Window) {
    reason.assign(reinterpret_cast<const char*>(window_), static_cast<std::size_t>(reply.bytes));
  }
  file_->check();
  throw Error(reply.status == Hdf5Status::kUnsupported ? ErrorKind::kUnsupported : ErrorKind::kData,
              fmt::format("{}: {} {}", printable(file_->path()), doing, printable(reason)));
}

bool Hdf5Process::wait_reply(bool patient, const std::string& doing, Hdf5Reply& reply) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kListingPatience;
  for (;;) {
    int wait = -1;
    if (!patient) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      wait = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    if (stop_ != nullptr && *stop_) {
      stop();
      throw Error(ErrorKind::kData, "interrupted");
    }
    const bool cut = stop_ != nullptr && (wait < 0 || wait > kStopMilliseconds);
    if (cut) wait = kStopMilliseconds;
    pollfd event{socket_, POLLIN, 0};
    const int ready = ::poll(&event, 1, wait);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && cut) continue;
    if (ready == 0) {
      stop();
      throw Error(ErrorKind::kData,
                  fmt::format("{}: the HDF5 library gave no answer in {} seconds while {}",
                              printable(file_->path()), kListingPatience.count(), doing));
    }
    const ssize_t size = ::recv(socket_, &reply, sizeof reply, 0);
    if (size < 0 && errno == EINTR) continue;
    return size == static_cast<ssize_t>(sizeof reply);
  }
}

Hdf5Reply Hdf5Process::ask(const Hdf5Request& request, const std::string& name,
                           const std::string& doing) {
  if (name.size() > static_cast<std::size_t>(kHdf5Window)) {
    throw Error(ErrorKind::kData, fmt::format("{}: a path of {} bytes, expected at most {}",
                                              printable(file_->path()), name.size(), kHdf5Window));
  }
  // A process that something outside killed is replaced once.
  for (bool again = request.operation != Hdf5Operation::kMore;; again = false) {
    if (process_ < 0) start();
    std::memcpy(window_, name.data(), name.size());
    ssize_t sent;
    do {
      sent = ::send(socket_, &request, sizeof request, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    Hdf5Reply reply;
    const bool patient = request.operation == Hdf5Operation::kRead;
    if (sent == static_cast<ssize_t>(sizeof request) && wait_reply(patient, doing, reply)) {
      return reply;
    }
    // Its end of the socket is closed; should it live on for a reason of its own, this ends it.
    ::shutdown(socket_, SHUT_RDWR);
    int status = 0;
    pid_t ended;
    do {
      ended = ::waitpid(process_, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended != process_) status = 0;  // somebody else collected it
    process_ = -1;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    stop();
    if (!(killed && again)) died(status, doing);
  }
}

std::vector<Hdf5Dataset> Hdf5Process::list() {
  const std::lock_guard lock(mutex_);
  const std::string doing = "listing its datasets";
  Hdf5Reply reply = ask({}, "", doing);
  if (reply.status != Hdf5Status::kOk) fail(reply, "the HDF5 library cannot list it:");
  std::string listing;
  const std::int64_t total = reply.total;
  for (;;) {
    const auto have = static_cast<std::int64_t>(listing.size());
    if (reply.status != Hdf5Status::kOk || reply.bytes < 0 || reply.bytes > kHdf5Window ||
        reply.bytes > total - have || (reply.bytes == 0 && have != total)) {
      break;
    }
    listing.append(reinterpret_cast<const char*>(window_), static_cast<std::size_t>(reply.bytes));
    if (std::ssize(listing) == total) break;
    Hdf5Request more;
    more.operation = Hdf5Operation::kMore;
    more.offset = std::ssize(listing);
    reply = ask(more, "", doing);
  }
  std::vector<Hdf5Dataset> datasets;
  if (std::ssize(listing) != total || !parse_records(listing, datasets)) {
    stop();
    throw Error(ErrorKind::kData,
                fmt::format("{}: the HDF5 library went astray while {}; the file may be damaged",
                            printable(file_->path()), doing));
  }
  // Of thousands of files only those that are read keep a process.
  stop();
  return datasets;
}

Hdf5Work Hdf5Process::read(const std::string& name, const Hdf5Request& rectangle,
                           std::int64_t bytes, const std::function<void(unsigned char*)>& use) {
  const std::lock_guard lock(mutex_);
  Hdf5Request request = rectangle;
  request.operation = Hdf5Operation::kRead;
  request.name_bytes = static_cast<std::uint32_t>(name.size());
  const std::string tensor = "tensor " + in_quotes(name);
  const Hdf5Reply reply = ask(request, name, "reading " + tensor);
  if (reply.status != Hdf5Status::kOk) fail(reply, tensor);
  if (reply.bytes != bytes || bytes > kHdf5Window) {
    stop();
    throw Error(ErrorKind::kData,
                fmt::format("{}: the HDF5 library gave {} bytes, expected {}, while reading {}",
                            printable(file_->path()), reply.bytes, bytes, tensor));
  }
  use(window_);
  // A process that went astray may say anything.
  constexpr std::int64_t kMostUnpacked = std::int64_t{1} << 40;
  return {std::clamp<std::int64_t>(reply.unpacked, 0, kMostUnpacked),
          std::max<std::int64_t>(reply.columns, 0)};
}

}  // namespace fp4scope
