// SPDX-License-Identifier: Apache-2.0
//
// Lets Debian's user-mode Linux 6.1 run on processors whose extended register
// state (XSAVE) is larger than the buffer it keeps, such as those with AMX. There
// the host's kernel takes PTRACE_SETREGSET for NT_X86_XSTATE only with the whole
// state, answers EFAULT to a part, and the guest panics.
//
// Preloaded, this keeps the guest's part and fills in the rest: a read gives the
// guest as much as it has room for, a write lays the guest's part over the state
// as it is. Tile registers lie in the rest and guests do not use them, so their
// bits are taken out of the header that a guest saves: a header must not promise
// what its buffer lacks. On other processors this changes nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define XSTATE 0x202                                  // NT_X86_XSTATE
#define HEADER 512                                    // where the header's bits stand
#define TILES ((UINT64_C(1) << 17) | (UINT64_C(1) << 18)) // XTILECFG, XTILEDATA

typedef long ptrace_fn(int, ...);

static void hide_tiles(char *state, size_t len)
{
	uint64_t bits;
	if (len < HEADER + sizeof bits)
		return;
	memcpy(&bits, state + HEADER, sizeof bits);
	bits &= ~TILES;
	memcpy(state + HEADER, &bits, sizeof bits);
}

static long xstate(ptrace_fn *real, int write, int pid, void *set, struct iovec *part)
{
	static char state[1 << 16];
	struct iovec whole = {state, sizeof state};
	long err = real(PTRACE_GETREGSET, pid, set, &whole);
	if (err < 0)
		return err;
	size_t len = part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len;
	if (write) {
		memcpy(state, part->iov_base, len);
		return real(PTRACE_SETREGSET, pid, set, &whole);
	}
	memcpy(part->iov_base, state, len);
	part->iov_len = len;
	if (len < whole.iov_len)
		hide_tiles(part->iov_base, len);
	return 0;
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_fn *real;
	if (!real)
		real = (ptrace_fn *)dlsym(RTLD_NEXT, "ptrace");
	va_list args;
	va_start(args, request);
	int pid = va_arg(args, int);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	int regset = request == PTRACE_GETREGSET || request == PTRACE_SETREGSET;
	if (regset && (uintptr_t)addr == XSTATE)
		return xstate(real, request == PTRACE_SETREGSET, pid, addr, data);
	return real(request, pid, addr, data);
}
