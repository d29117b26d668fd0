// SPDX-License-Identifier: Apache-2.0

/*
Package windows runs the programs for Windows under wine: the host on manifest files, the
userspace dataplane that it launches, and its verbs. Clients and endpoints are in the test's own
process, since wine's sockets are the machine's. The tests leave out what wine 8.0 lacks, as
docs/windows.md lists it. They must not use the user's own wine prefix. Start reading at
windows_linux_test.go.

wine 8.0 cannot add addresses. To test that on Windows, with addresses: auto and a Service whose clusterIP
is 10.96.0.10, in an administrator's PowerShell:

	Get-NetIPAddress -IPAddress 10.96.0.10 | Format-List
		PrefixLength 32, SkipAsSource True, AddressState Preferred
	Test-NetConnection 10.96.0.10 -Port 80
		it connects
	Get-Content $env:ProgramData\Pointsman\ledger\addresses\addresses.json
		"created" is there, and not 0
	Remove-NetIPAddress -IPAddress 10.96.0.10 -Confirm:$false
		the address comes back within 5 seconds
	New-NetIPAddress -InterfaceAlias "vEthernet (nat)" -IPAddress 10.96.0.11 -PrefixLength 32
		the address stays after a Service with that clusterIP is created and deleted
	pointsman.exe cleanup
		with the host stopped, it names each address once, and Get-NetIPAddress has none of them
*/
package windows
