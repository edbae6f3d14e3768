package controlplane

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// auditPolicy records all requests of clients. It leaves out health checks and the
// requests of the server to itself, which would be most of the log.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
`

// credentials hold the certificate of the server and the token of an administrator.
type credentials struct {
	certPEM []byte
	token   string
}

// writeCredentials makes new credentials and writes the server's configuration files to
// dir.
func writeCredentials(dir string) (credentials, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return credentials{}, fmt.Errorf("make a certificate: %w", err)
	}
	c := credentials{certPEM: certPEM, token: rand.Text()}
	files := map[string][]byte{
		"server.crt":        certPEM,
		"server.key":        keyPEM,
		"tokens.csv":        []byte(c.token + ",admin,admin,system:masters\n"),
		"audit-policy.yaml": []byte(auditPolicy),
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return credentials{}, fmt.Errorf("write the server's configuration: %w", err)
		}
	}
	return c, nil
}

// Config returns a new client configuration of an administrator, without client-side rate
// limits and without warnings. It stays valid over restarts.
func (c *ControlPlane) Config() *rest.Config {
	return &rest.Config{
		Host:            c.url(),
		BearerToken:     c.credentials.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.credentials.certPEM},
		QPS:             -1,
		WarningHandler:  rest.NoWarnings{},
	}
}

// Kubeconfig returns the path of an administrator's kubeconfig file in Options.Dir.
func (c *ControlPlane) Kubeconfig() string { return c.path("kubeconfig") }

func (c *ControlPlane) writeKubeconfig() error {
	const name = "informctl"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.url(), CertificateAuthorityData: c.credentials.certPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: c.credentials.token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
