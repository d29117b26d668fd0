// SPDX-License-Identifier: Apache-2.0

/*
Package windows tests the programs for Windows under wine: a host that reads manifest files, the
userspace dataplane that it launches, and the host's verbs. Clients and endpoints run in the test's own
process, since programs under wine use the sockets of the machine. The tests leave out what wine 8.0
lacks (see docs/windows.md). They must not use the user's own wine prefix. Start reading at TestWindows.

wine 8.0 cannot add addresses. To test this by hand on Windows, set addresses: auto, create a Service with
clusterIP 10.96.0.10, and run these commands in an administrator's PowerShell:

	Get-NetIPAddress -IPAddress 10.96.0.10 | Format-List
		PrefixLength 32, SkipAsSource True, AddressState Preferred
	Test-NetConnection 10.96.0.10 -Port 80
		connects
	Get-Content $env:ProgramData\Pointsman\ledger\addresses\addresses.json
		contains "created" with a value other than 0
	Remove-NetIPAddress -IPAddress 10.96.0.10 -Confirm:$false
		the address comes back within 5 seconds
	New-NetIPAddress -InterfaceAlias "vEthernet (nat)" -IPAddress 10.96.0.11 -PrefixLength 32
		the address stays after a Service with that clusterIP is created and deleted
	pointsman.exe cleanup
		(after you stopped the host) names each address once, and Get-NetIPAddress no longer lists any
*/
package windows
