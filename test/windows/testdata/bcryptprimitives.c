// SPDX-License-Identifier: Apache-2.0
//
// This library has the one function of bcryptprimitives.dll that Go's runtime calls. wine 8.0 lacks this library, so the
// test installs it in its own prefix.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); // RtlGenRandom, of advapi32

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
	return SystemFunction036(data, (ULONG)size);
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD why, LPVOID reserved) { return TRUE; }
