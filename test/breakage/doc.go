// SPDX-License-Identifier: Apache-2.0

/*
Package breakage breaks a node in every way that it knows, one after the other in a random
order, while callers call all the time, and holds what is left to what a fresh node is.

	world     a namespace with a host, its plugins and its Services; callers and endpoints around it
	faults    each does one thing, holds the reports to it while it lasts, undoes it
	settle    after each: the host says that all is served, and each Service is reached as it should be
	end       rules as a fresh host writes them, nothing foreign changed, no process, socket or descriptor left

Host and plugins are the real binaries, the kernel's rules are real, iptables with both
backends; under a kernel that has IPVS (test/uml) the mode ipvs is among them. Kernel modes
may fail no call, ever. A relay may fail calls while its own process was killed.

What a fault has the host report is seen in status and metrics, and where it says so in
the probes, within 5 s. Time in which this process did not get to run does not count.

	POINTSMAN_SEED=N       repeats the sequence of a run, which each run prints
	POINTSMAN_SOAK=N       has N times as many rounds
	POINTSMAN_FAULTS=RE    has only faults whose names match
	POINTSMAN_BIN=FOLDER   takes the binaries from there, and builds none
	POINTSMAN_BUNDLE=DIR   is where a failing run leaves its bundle (the temporary folder)

A run that fails prints its seed, its sequence and the folder with its bundle: the logs,
status, events, metrics, rules, processes, and all that the host wrote down.
*/
package breakage
