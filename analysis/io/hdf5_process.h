// hdf5_process.h: asks the HDF5 library of another process about one file. The library is not
// thread-safe, loops or crashes on some damaged files, and is not trusted: its process may die at
// any time, which becomes an error of what was asked.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "analysis/io/hdf5_record.h"
#include "analysis/io/mmap.h"
#include "sim/error.h"

namespace fp4scope {

// The library crashed or did not end; it would do so again.
class Hdf5Crash : public Error {
 public:
  explicit Hdf5Crash(const std::string& message) : Error(ErrorKind::kData, message) {}
};

// What a read took, see Hdf5Reply.
struct Hdf5Work {
  std::int64_t unpacked = 0, columns = 0;
};

class Hdf5Process {
 public:
  // `stop`, if any, ends what waits for the library: Error(kData, "interrupted").
  Hdf5Process(std::shared_ptr<MappedFile> file, const std::atomic<bool>* stop)
      : file_(std::move(file)), stop_(stop) {}
  ~Hdf5Process();
  Hdf5Process(const Hdf5Process&) = delete;
  Hdf5Process& operator=(const Hdf5Process&) = delete;

  // All datasets of the file. Throws Error(kData), as Hdf5Crash where the library crashed.
  std::vector<Hdf5Dataset> list();
  // A rectangle of the dataset as it lies in the file (flattened, without the dimensions of an
  // array type) of at most kHdf5Window bytes, which `use` sees. Thread-safe. Throws Error(kData),
  // Hdf5Crash and, for a missing filter or data outside the file, Error(kUnsupported).
  Hdf5Work read(const std::string& name, const Hdf5Request& rectangle, std::int64_t bytes,
                const std::function<void(unsigned char*)>& use);

 private:
  void start();
  void stop() noexcept;
  static void make_room();
  // Sends `request` and waits; `doing` is for sentences. With mutex_ held.
  Hdf5Reply ask(const Hdf5Request& request, const std::string& name, const std::string& doing);
  [[noreturn]] void fail(const Hdf5Reply& reply, const std::string& doing) const;
  // False: the process is gone. Unless `patient`, it has to come in time.
  bool wait_reply(bool patient, const std::string& doing, Hdf5Reply& reply);
  // `status` is that of waitpid().
  [[noreturn]] void died(int status, const std::string& doing) const;

  std::shared_ptr<MappedFile> file_;
  const std::atomic<bool>* stop_;
  std::mutex mutex_;
  pid_t process_ = -1;
  int socket_ = -1;
  unsigned char* window_ = nullptr;
};

}  // namespace fp4scope
