// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ServiceAccount is the folder in which a pod has its token and the certificate of the API server's authority.
const ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// WriteKubeconfig writes a kubeconfig to the file to. It contains the API server's address from the kubeconfig from,
// and refers to the credentials of the service account in the folder account, which need not exist yet. The kubeconfig
// from is usually the kubelet's, because the kubelet reaches the API server before Services are served; its credentials
// are not used.
func WriteKubeconfig(from, to, account string) error {
	theirs, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", from, err)
	}
	current := theirs.Contexts[theirs.CurrentContext]
	if current == nil {
		return fmt.Errorf("kubeconfig %s has no current context", from)
	}
	server := theirs.Clusters[current.Cluster]
	if server == nil || server.Server == "" {
		return fmt.Errorf("kubeconfig %s names no server in its current context", from)
	}
	const name = "pointsman"
	ours := clientcmdapi.NewConfig()
	ours.CurrentContext = name
	ours.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	ours.Clusters[name] = &clientcmdapi.Cluster{Server: server.Server, TLSServerName: server.TLSServerName, CertificateAuthority: filepath.Join(account, "ca.crt")}
	ours.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(account, "token")}
	text, err := clientcmd.Write(*ours)
	if err == nil {
		err = os.WriteFile(to, text, 0o644) // world-readable, because the host runs as another user and the file has no secret
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", to, err)
	}
	return nil
}
