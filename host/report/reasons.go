// SPDX-License-Identifier: Apache-2.0

package report

// The reasons of the host's own events. Others are the tracker's and the sources'.
const (
	HostStarting    = "Starting"        // the host begins; kube-proxy's word
	ConfigTaken     = "ConfigTaken"     // the config file changed, and was taken in
	ConfigRefused   = "ConfigRefused"   // it cannot be used; the last good one stays in force
	ConfigOdd       = "ConfigOdd"       // no error, but worth a look
	PluginServing   = "PluginServing"   // its process is up
	PluginDown      = "PluginDown"      // its process ended, hangs, or does not come up
	PluginStarting  = "PluginStarting"  // its process is started
	PluginStopped   = "PluginStopped"   // the host ended it
	PluginBanned    = "PluginBanned"    // it failed too often, and is not tried for a while
	PluginLeftAlone = "PluginLeftAlone" // a process that seems to be a plugin, and is not ours to end
	PluginPoisoned  = "PluginPoisoned"  // it crashes on what it is sent
	ServicePoison   = "ServicePoison"   // a plugin crashes on it
	ServiceFreed    = "ServiceFreed"    // it changed, and is tried again
	PluginRefuses   = "PluginRefuses"   // this node cannot run it
	PluginNote      = "PluginNote"      // something about it to know
	ParameterNotSet = "ParameterNotSet" // a plugin could not set one of the kernel's
	StateNotUsed    = "StateNotUsed"    // a state file cannot be used; the host begins without it
	StateNotWritten = "StateNotWritten" // what the next host must know could not be written down
	StateWritten    = "StateWritten"    // it could, at last
	WriterElsewhere = "WriterElsewhere" // another process holds the writer's lock of the mode
	WriterHere      = "WriterHere"      // the plugin is the writer again
	SyncFailed      = "SyncFailed"      // an update did not go in, and is tried again
	DataplaneActive = "DataplaneActive" // it was made Active
	SwapStage       = "SwapStage"       // a change of mode is under way
	SwapDone        = "SwapDone"        // it was made
	SwapUndone      = "SwapUndone"      // it was not, and what served before serves on
	SwapNote        = "SwapNote"        // something about it to look at
	PortInUse       = "PortInUse"       // a process of this node listens where a Service is reached
)
