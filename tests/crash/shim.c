/* Stands between a process and its files (LD_PRELOAD). Only files whose path contains $SHIM_MATCH
 * are touched; every call on them is counted, and one can be made to fail, or all written down.
 *
 * Failing:   shim_arm(n, error, times): the nth call from now fails with that errno, and so do the
 *            (times - 1) after it. shim_fired() says how many have failed, shim_count() how many
 *            calls there were since. Called through ctypes.
 * Recording: with $SHIM_LOG every call that succeeded is appended to that file, in order:
 *            struct record, then the path, then the data. A write to a file whose path contains
 *            $SHIM_MARK is a mark: somebody was told something at this point.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct record { char what[4]; uint32_t path; uint64_t offset; uint64_t length; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *match, *mark;
static int out = -1;
static long armed, times, wrong, counted, fired;

__attribute__((constructor)) static void begin(void) {
  const char *log = getenv("SHIM_LOG");
  match = getenv("SHIM_MATCH");
  mark = getenv("SHIM_MARK");
  if (log) out = open(log, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
}

void shim_arm(long n, long error, long how_often) {
  pthread_mutex_lock(&lock);
  armed = n; wrong = error; times = how_often; counted = 0; fired = 0;
  pthread_mutex_unlock(&lock);
}
long shim_count(void) { return counted; }
long shim_fired(void) { return fired; }

static int of_fd(int fd, char *path, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(name, path, size - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return 1;
}

/* Is the path ours? -shm is memory that all processes share, never what is on disk. */
static int ours(const char *path) { return match && strstr(path, match) != NULL; }
static int marks(const char *path) { return mark && strstr(path, mark) != NULL; }
static int shared(const char *path) {
  size_t n = strlen(path);
  return n > 4 && strcmp(path + n - 4, "-shm") == 0;
}

/* The lock is held. Whether this call is to fail. */
static int fails(void) {
  counted++;
  if (!armed || counted < armed || counted >= armed + times) return 0;
  fired++;
  return 1;
}

static void put(const void *data, size_t size) {
  const char *at = data;
  while (size) {
    ssize_t n = syscall(SYS_write, out, at, size);
    if (n <= 0) abort();
    at += n; size -= n;
  }
}

static void record(const char *what, const char *path, uint64_t offset, const void *data, size_t size) {
  if (out < 0 || shared(path)) return;
  struct record r = {{0}, strlen(path), offset, size};
  memcpy(r.what, what, strlen(what) < 4 ? strlen(what) : 4);
  put(&r, sizeof r);
  put(path, r.path);
  if (data) put(data, size);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  char path[4096];
  if (!match || !of_fd(fd, path, sizeof path) || (!ours(path) && !marks(path))) return real(fd, data, size);
  pthread_mutex_lock(&lock);
  ssize_t n = -1;
  if (!marks(path) && fails()) { pthread_mutex_unlock(&lock); errno = wrong; return -1; }
  off_t at = lseek(fd, 0, SEEK_CUR);
  n = real(fd, data, size);
  int kept = errno;
  if (n > 0) record(marks(path) ? "M" : "W", path, at, data, n);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return n;
}

static ssize_t at_offset(ssize_t (*real)(int, const void *, size_t, off_t), int fd, const void *data,
                         size_t size, off_t offset) {
  char path[4096];
  if (!match || !of_fd(fd, path, sizeof path) || !ours(path)) return real(fd, data, size, offset);
  pthread_mutex_lock(&lock);
  if (fails()) { pthread_mutex_unlock(&lock); errno = wrong; return -1; }
  ssize_t n = real(fd, data, size, offset);
  int kept = errno;
  if (n > 0) record("W", path, offset, data, n);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return n;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  REAL(pwrite);
  return at_offset(real, fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
  REAL(pwrite64);
  return at_offset(real, fd, data, size, offset);
}

static int synced(int (*real)(int), int fd) {
  char path[4096];
  if (!match || !of_fd(fd, path, sizeof path)) return real(fd);
  struct stat about;
  int folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
  if (!folder && !ours(path)) return real(fd);
  pthread_mutex_lock(&lock);
  if (!folder && fails()) { pthread_mutex_unlock(&lock); errno = wrong; return -1; }
  int rc = real(fd), kept = errno;
  if (rc == 0) record(folder ? "D" : "S", path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return rc;
}
int fsync(int fd) { REAL(fsync); return synced(real, fd); }
int fdatasync(int fd) { REAL(fdatasync); return synced(real, fd); }

static int cut(int (*real)(int, off_t), int fd, off_t size) {
  char path[4096];
  if (!match || !of_fd(fd, path, sizeof path) || !ours(path)) return real(fd, size);
  pthread_mutex_lock(&lock);
  if (fails()) { pthread_mutex_unlock(&lock); errno = wrong; return -1; }
  int rc = real(fd, size), kept = errno;
  if (rc == 0) record("T", path, size, NULL, 0);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return rc;
}
int ftruncate(int fd, off_t size) { REAL(ftruncate); return cut(real, fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return cut(real, fd, size); }

int unlink(const char *path) {
  REAL(unlink);
  if (!match || !ours(path)) return real(path);
  pthread_mutex_lock(&lock);
  if (fails()) { pthread_mutex_unlock(&lock); errno = wrong; return -1; }
  int rc = real(path), kept = errno;
  if (rc == 0) record("U", path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return rc;
}
