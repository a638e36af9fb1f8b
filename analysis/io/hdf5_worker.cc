// hdf5_worker.cc: see hdf5_worker.h. The process that forked may have had threads, whose locks are
// gone: nothing here uses more of them than malloc, which glibc makes safe after fork().
#include "analysis/io/hdf5_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/io/hdf5_dataset.h"

namespace fp4scope {
namespace {

constexpr int kSocket = 3;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// Open datasets: operands read one or two at a time.
constexpr std::size_t kOpenDatasets = 4;
// Beyond this only two stay open.
constexpr std::int64_t kOpenBytes = 320 * kMiB;

// The other end is gone: it may have been killed while the library is busy here.
void on_socket_event(int) {
  pollfd socket{kSocket, POLLRDHUP, 0};
  if (::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    ::kill(::getpid(), SIGKILL);
  }
}

void set_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  // Ctrl-C and shutdown are for the process that asks; it ends this one by closing the socket.
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) {
    ::signal(ignored, SIG_IGN);
  }
  struct sigaction action {};
  action.sa_handler = on_socket_event;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGIO, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Standard streams lead nowhere (glibc and sanitizers print before they abort); all other files of
// the parent are closed.
bool set_descriptors(int socket) {
  const int nowhere = ::open("/dev/null", O_RDWR);
  if (nowhere < 0) return false;
  if (socket != kSocket) {
    // `nowhere` may be the descriptor that the socket has to get.
    const int saved = nowhere == kSocket ? ::fcntl(nowhere, F_DUPFD, kSocket + 1) : nowhere;
    ::dup2(socket, kSocket);
    for (const int stream : {0, 1, 2}) ::dup2(saved, stream);
  } else {
    for (const int stream : {0, 1, 2}) ::dup2(nowhere, stream);
  }
  if (::close_range(kSocket + 1, ~0U, 0) != 0) {
    for (int fd = kSocket + 1; fd < 65536; ++fd) ::close(fd);
  }
  return ::fcntl(kSocket, F_SETOWN, ::getpid()) == 0 &&
         ::fcntl(kSocket, F_SETFL, ::fcntl(kSocket, F_GETFL) | O_ASYNC) == 0;
}

void limit(int resource, rlim_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &now);
  now.rlim_cur = std::min(most, now.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
}

// Pages that this process has mapped now, in bytes.
rlim_t mapped_bytes() {
  // /proc may not be there and no file can be opened here: what is known is that the break and the
  // limit can be tried. The size is taken once, before files are closed off.
  static rlim_t size = 0;
  if (size == 0) {
    const int fd = ::open("/proc/self/statm", O_RDONLY);
    char text[64] = {};
    if (fd >= 0 && ::read(fd, text, sizeof text - 1) > 0) {
      size = std::strtoull(text, nullptr, 10) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    }
    if (fd >= 0) ::close(fd);
  }
  return size;
}

// What one request may use: a damaged file makes the library loop or allocate without end.
void set_budget(std::int64_t seconds, std::int64_t bytes) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  limit(RLIMIT_CPU, static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1 + seconds));
  if (mapped_bytes() != 0) limit(RLIMIT_AS, mapped_bytes() + static_cast<rlim_t>(bytes));
}

// The file as an image that the library takes as its own buffer. It is opened for reading, so the
// pages, which cannot be written, stay as they are.
struct Image {
  const MappedFile* file;
};
void* image_malloc(std::size_t size, H5FD_file_image_op_t, void* image) {
  const MappedFile& file = *static_cast<Image*>(image)->file;
  if (size != static_cast<std::size_t>(file.size())) return nullptr;
  return const_cast<unsigned char*>(file.data());
}
void* image_memcpy(void* to, const void* from, std::size_t, H5FD_file_image_op_t, void*) {
  return to == from ? to : nullptr;
}
void* image_realloc(void*, std::size_t, H5FD_file_image_op_t, void*) {
  return nullptr;
}
herr_t image_free(void*, H5FD_file_image_op_t, void*) {
  return 0;
}
void* keep_image(void* image) {
  return image;
}
herr_t release_image(void*) {
  return 0;
}

class Worker {
 public:
  Worker(const MappedFile& mapped, unsigned char* window)
      : image_{&mapped}, bytes_(mapped.size()), window_(window) {}

  Hdf5Reply answer(const Hdf5Request& request) {
    try {
      switch (request.operation) {
        case Hdf5Operation::kList:
          return list();
        case Hdf5Operation::kMore:
          return more(request.offset);
        case Hdf5Operation::kRead:
          return read(request);
      }
    } catch (...) {  // std::bad_alloc
    }
    return fail(Hdf5Status::kData, "needs more memory than such a file may take");
  }

 private:
  Hdf5Reply fail(Hdf5Status status, std::string_view reason) {
    const std::size_t size = std::min<std::size_t>(reason.size(), 4096);
    std::memcpy(window_, reason.data(), size);
    return {status, static_cast<std::int64_t>(size), 0};
  }

  // Empty, or why not.
  std::string open() {
    if (file_) return "";
    const Hid access(H5Pcreate(H5P_FILE_ACCESS));
    H5FD_file_image_callbacks_t callbacks{image_malloc, image_memcpy,  image_realloc, image_free,
                                          keep_image,   release_image, &image_};
    // The core driver keeps a file in memory; nothing is ever written back.
    if (H5Pset_fapl_core(access.get(), kMiB, false) < 0 ||
        H5Pset_file_image_callbacks(access.get(), &callbacks) < 0 ||
        H5Pset_file_image(access.get(), const_cast<unsigned char*>(image_.file->data()),
                          static_cast<std::size_t>(bytes_)) < 0) {
      return hdf5_error();
    }
    file_ = Hid(H5Fopen("image", H5F_ACC_RDONLY, access.get()));
    return file_ ? "" : hdf5_error();
  }

  Hdf5Reply list() {
    // Milliseconds for a small file; a disk may be slow, but that is no processor time.
    set_budget(5 + bytes_ / kMiB, 256 * kMiB + 8 * std::min(bytes_, 1024 * kMiB));
    if (const std::string failure = open(); !failure.empty()) {
      return fail(Hdf5Status::kData, failure);
    }
    if (!list_hdf5(file_.get(), bytes_, listing_)) return fail(Hdf5Status::kData, listing_);
    return more(0);
  }

  Hdf5Reply more(std::int64_t offset) {
    const auto total = static_cast<std::int64_t>(listing_.size());
    if (offset < 0 || offset > total) return fail(Hdf5Status::kData, "lost the listing");
    const std::int64_t size = std::min(total - offset, kHdf5Window);
    std::memcpy(window_, listing_.data() + offset, static_cast<std::size_t>(size));
    return {Hdf5Status::kOk, size, total};
  }

  Hdf5Reply read(const Hdf5Request& request) {
    const std::string path(reinterpret_cast<const char*>(window_), request.name_bytes);
    // A chunk that expands a thousandfold takes its time; a filter that never ends gets no more.
    const std::int64_t seconds = 5 + 20 * (bytes_ / kMiB);
    set_budget(seconds, 256 * kMiB);
    if (const std::string failure = open(); !failure.empty()) {
      return fail(Hdf5Status::kData, failure);
    }
    OpenDataset& dataset = opened(path);
    const Hdf5Layout& layout = dataset.layout();
    if (layout.refusal != Hdf5Status::kOk) return fail(layout.refusal, layout.reason);
    std::int64_t others = 0;
    for (const auto& [name, other] : open_) others += other.working_bytes();
    set_budget(seconds, 256 * kMiB + others);
    const std::int64_t before = dataset.unpacked_bytes();
    const std::string failure = dataset.read(request, window_);
    // Chunks may have skipped the filter, so that only the failure shows that it is needed.
    if (!failure.empty() && !layout.missing_filters.empty()) {
      return fail(Hdf5Status::kUnsupported,
                  "is stored with a filter that the HDF5 library does not find here: " +
                      layout.missing_filters);
    }
    if (!failure.empty()) return fail(Hdf5Status::kData, "cannot be read: " + failure);
    return {Hdf5Status::kOk, request.rows * request.cols * dataset.element_bytes(), 0,
            dataset.unpacked_bytes() - before, dataset.columns_at_once()};
  }

  OpenDataset& opened(const std::string& path) {
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&](const auto& entry) { return entry.first == path; });
    if (found != open_.end()) {
      open_.splice(open_.begin(), open_, found);
    } else {
      if (open_.size() == kOpenDatasets) open_.pop_back();
      open_.emplace_front(std::piecewise_construct, std::forward_as_tuple(path),
                          std::forward_as_tuple(file_.get(), path, bytes_));
      std::int64_t kept = 0;
      for (const auto& [name, dataset] : open_) kept += dataset.working_bytes();
      for (; open_.size() > 2 && kept > kOpenBytes; open_.pop_back()) {
        kept -= open_.back().second.working_bytes();
      }
    }
    return open_.front().second;
  }

  Image image_;
  std::int64_t bytes_;
  unsigned char* window_;
  Hid file_;
  std::string listing_;
  std::list<std::pair<std::string, OpenDataset>> open_;  // the last used first
};

}  // namespace

void serve_hdf5(int socket, const MappedFile& file, unsigned char* window) noexcept {
  ::setsid();  // no terminal, and no part in its signals
  set_signals();
  (void)mapped_bytes();
  if (!set_descriptors(socket)) return;
  ::prctl(PR_SET_NAME, "fp4scope-hdf5");
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  if (H5open() < 0) return;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // No data file leads to another file: not by links, and not by what nobody thought of.
  H5Lunregister(H5L_TYPE_EXTERNAL);
  limit(RLIMIT_NOFILE, 1);  // descriptor 0 is taken; poll() of one needs a limit of one

  Worker worker(file, window);
  for (;;) {
    Hdf5Request request;
    ssize_t size;
    do {
      size = ::recv(kSocket, &request, sizeof request, 0);
    } while (size < 0 && errno == EINTR);
    if (size != static_cast<ssize_t>(sizeof request) || request.name_bytes > kHdf5Window) return;
    const Hdf5Reply reply = worker.answer(request);
    do {
      size = ::send(kSocket, &reply, sizeof reply, MSG_NOSIGNAL);
    } while (size < 0 && errno == EINTR);
    if (size != static_cast<ssize_t>(sizeof reply)) return;
  }
}

}  // namespace fp4scope
