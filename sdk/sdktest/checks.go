// SPDX-License-Identifier: Apache-2.0

package sdktest

import "github.com/pointsman/pointsman/sdk"

// checks are all lines of the contract, in order.
func checks() []check {
	all := []check{
		{"C00/same-setup-twice", true, sameSetupTwice},
		{"C00/first-is-full", true, firstIsFull},
		{"C00/new-session-starts-over", true, newSessionStartsOver},
		{"C00/older-session-is-fenced", false, olderIsFenced},
		{"C01/packets-are-sent", true, packetsAreSent},
	}
	all = append(all, verdictChecks()...)
	all = append(all, routeChecks()...)
	return append(all,
		check{"C02/affinity", false, affinityIsKept},
		check{"C02/affinity-over-frontends", false, affinityOverFrontends},
		check{"C03/gap-resyncs", true, gapResyncs},
		check{"C03/full-twice", true, fullTwice},
		check{"C03/full-drops-stale", true, fullDropsStale},
		check{"C03/delta-twice", true, deltaTwice},
		check{"C03/delete-of-nothing", true, deleteOfNothing},
		check{"C03/keep", true, keepKeeps},
		check{"C03/random-walk", true, randomWalk},
		check{"C03/established-tcp-stays", false, establishedStays},
		check{"C04/one-bad-service", true, isolates(unknownKind)},
		check{"C04/bad-keeps-what-served", true, badKeepsWhatServed},
		check{"C04/address-not-ours", true, addressNotOurs},
		check{"C05/ten-thousand-services", true, tenThousandServices},
		check{"C06/restart", true, restartAdopts},
		check{"C06/foreign-stays", false, foreignStays},
		check{"C06/dry-run-only-names", true, dryRunOnlyNames},
		check{"C06/cleanup-leaves-nothing", true, cleanupLeavesNothing},
		check{"C06/cleanup-of-nothing", true, cleanupOfNothing},
		check{"C07/begins-in-standby", true, beginsInStandby},
		check{"C07/any-role-to-any", true, anyRoleToAny},
		check{"C07/only-active-catches", true, onlyActiveCatches},
		check{"C07/draining-keeps-established", false, drainingKeeps},
		check{"C07/every-role-keeps-established", false, everyRoleKeeps("cluster-ip")},
		check{"C07/every-role-keeps-established-by-node-port", false, everyRoleKeeps("node-port")},
		check{"C07/yielded-catches-up", true, yieldedCatchesUp},
		check{"C08/second-only-plans", false, secondOnlyPlans},
		check{"C08/second-takes-over-from-yielded", false, secondTakesOver(func(first *trial) { first.role(sdk.Yielded) })},
		check{"C08/second-takes-over-from-dead", false, secondTakesOver((*trial).stop)},
		check{"C08/yielded-never-tries", true, yieldedNeverTries},
		check{"C09/udp-leaves-the-gone", false, udpLeavesTheGone},
		check{"C09/udp-stays-with-the-others", false, udpStaysWithOthers},
		check{"C09/udp-stays-with-who-still-serves", false, udpStaysWithServing},
		check{"C09/udp-stays-when-nobody-serves", false, udpStaysWithoutEndpoints},
		check{"C10/frontend-changes-owner", true, frontendChangesOwner},
		check{"C11/ended-context", true, endedContext},
		check{"C11/context-ends-in-sync", true, contextEndsInSync},
		check{"C11/inspect-and-report-beside", true, besideSync},
		check{"C11/no-children-left", false, noChildrenLeft},
		check{"C12/drift-is-repaired", false, driftIsRepaired},
		check{"C13/unknown-protocol", true, isolates(unknownProtocol)},
		check{"C13/unknown-family", true, isolates(unknownFamily)},
		check{"C13/unknown-kind", true, isolates(unknownKind)},
		check{"C13/unknown-policy", true, isolates(unknownPolicy)},
	)
}
