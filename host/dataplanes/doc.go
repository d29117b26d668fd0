// SPDX-License-Identifier: Apache-2.0

/*
Package dataplanes runs the dataplanes of a host: one that serves, and for the time of a
swap another beside it.

The parts that decide know nothing of each other: supervise keeps a process alive, feed
tells it what has changed, swap leads from one dataplane to the next, intent says which mode
is to serve. They meet here, with what they need of this machine.

	                        ┌──────────────────── Set ─────────────────────┐
	mode swap, config file ─┼▶ intent.Store ─▶ follow                      │
	                        │        ▲            │                        │
	                        │        │            ▼                        │
	                        │     swapHost ◀─ swap.Runner ─▶ swapSide      │
	                        │        │                          │          │
	                        │        ▼                          ▼          │
	                        │     canary                    dataplane ◀────┼── track: Services
	                        │                    process, session, writer  │
	                        └─────────────────────────────────┼────────────┘
	                                                          ▼ the plugin's process

A Set is put together from parts that each know only what they need: the group of dataplanes
that run (set.go), the plugins that are installed, and a survey of rules that are left to
themselves (installed.go), the mode that "auto" stands for (auto.go), and the record of what the next host must know (follow.go). Its
verbs, which an operator asks for, are in mode.go and plan.go.

A dataplane is a mode as the host runs it (dataplane.go). Its process is started again
whenever it ends (process.go); each life of that is a session, in which a feed updates it
(session.go), and in which it may lack the writer's lock (writer.go). A swap sees it as a
swapSide (swap_side.go), and the set as a swapHost (swap_host.go).

What the next host must know is in the intent, and written down by it; the record tries again
what could not be written.
*/
package dataplanes
