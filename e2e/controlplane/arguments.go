package controlplane

import (
	"strconv"
	"strings"
)

// memberName is the name of etcd in its cluster of one member.
const memberName = "default"

// disabledPlugins are the admission plugins that reject or change objects if no
// controllers run.
var disabledPlugins = []string{
	"ServiceAccount", "NamespaceLifecycle", "LimitRanger", "ResourceQuota", "Priority", "DefaultTolerationSeconds", "TaintNodesByCondition",
}

func (c *ControlPlane) etcdArgs() []string {
	return append([]string{
		"--name=" + memberName,
		"--data-dir=" + c.dataDir(),
		"--listen-client-urls=" + c.etcdURL(),
		"--advertise-client-urls=" + c.etcdURL(),
		"--listen-peer-urls=" + c.peerURL(),
		"--initial-advertise-peer-urls=" + c.peerURL(),
		"--initial-cluster=" + c.initialCluster(),
		"--unsafe-no-fsync",
		"--quota-backend-bytes=" + strconv.Itoa(8<<30),
		"--log-level=warn",
	}, c.opts.EtcdArgs...)
}

func (c *ControlPlane) initialCluster() string { return memberName + "=" + c.peerURL() }

func (c *ControlPlane) apiserverArgs() []string {
	args := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// Nothing reads the endpoints of the service "kubernetes", and they must not be
		// on the loopback interface.
		"--endpoint-reconciler-type=none",
		"--secure-port=" + strconv.Itoa(c.ports.apiserver),
		"--etcd-servers=" + c.etcdURL(),
		// Only Compact removes history.
		"--etcd-compaction-interval=0",
		"--tls-cert-file=" + c.path("server.crt"),
		"--tls-private-key-file=" + c.path("server.key"),
		"--token-auth-file=" + c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + c.url(),
		"--service-account-key-file=" + c.path("server.key"),
		"--service-account-signing-key-file=" + c.path("server.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=" + strings.Join(disabledPlugins, ","),
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.auditLog(),
		// Requests reads one file, so it must not be rotated at the default of 100 MB.
		"--audit-log-maxsize=" + strconv.Itoa(1<<20),
		"--watch-cache=" + strconv.FormatBool(!c.opts.NoWatchCache),
	}
	return append(args, c.opts.APIServerArgs...)
}
