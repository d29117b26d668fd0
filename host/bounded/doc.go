// SPDX-License-Identifier: Apache-2.0

/*
Package bounded reads files that may not be what they seem: a pipe with no writer,
a device, a link into /proc, a file that grows without end, or one on a network file
system whose server is gone. ReadFile refuses all but regular files of a limited
size. A Caller makes calls that may never return, and waits for them only so long.
*/
package bounded
