package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Local is a listener of this machine alone: at the loopback, with TLS and a token. Its
// clients find all of it in a kubeconfig.
type Local struct {
	// Token is what a Server of it has to ask for.
	Token string
	// Kubeconfig is the path of the kubeconfig, which only its owner can read.
	Kubeconfig string

	listener net.Listener
	pair     tls.Certificate
}

const (
	maxHeaders    = 64 << 10 // bytes
	maxStreams    = 100      // of a connection of HTTP/2
	headerTime    = 10 * time.Second
	idleTime      = 90 * time.Second
	shutdownTime  = 5 * time.Second
	answerTime    = time.Second
	certificateOf = "informctl"
	certificate10 = 10 * 365 * 24 * time.Hour
	loopback      = "127.0.0.1"
	maxKubeconfig = 64 << 10 // bytes
)

// Listen listens at a port of the loopback, and writes the kubeconfig. Port 0 means that
// of the kubeconfig that is there, or any. What is in that kubeconfig stays the same as
// far as it can, so that clients go on when a process is started again.
func Listen(ctx context.Context, port int, kubeconfig string) (*Local, error) {
	l := &Local{Kubeconfig: kubeconfig}
	earlier := readKubeconfig(kubeconfig)
	l.Token = earlier.token
	if l.Token == "" {
		l.Token = newToken()
	}
	var err error
	if l.pair, err = certificate(l.Token, earlier.certificate); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	if Answers(ctx, kubeconfig) {
		return nil, fmt.Errorf("another process serves at port %s, as %s says", earlier.port, kubeconfig)
	}
	var listens net.ListenConfig
	at := fmt.Sprint(port)
	if port == 0 && earlier.port != "" {
		at = earlier.port
	}
	l.listener, err = listens.Listen(ctx, "tcp", net.JoinHostPort(loopback, at))
	if err != nil && port == 0 { // a process of another program has it
		l.listener, err = listens.Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
	}
	if err != nil {
		return nil, err
	}
	if err := l.writeKubeconfig(); err != nil {
		err = fmt.Errorf("the kubeconfig has to be beside the file, in a directory that can be written: %w", err)
		return nil, errors.Join(err, l.listener.Close())
	}
	return l, nil
}

func newToken() string { return rand.Text() + rand.Text() }

var tokenLength = len(newToken())

// certificate returns a certificate for the loopback: the one that is there if it is
// still good. Its key comes from the token, so that there is no other secret to keep.
func certificate(token string, earlier []byte) (tls.Certificate, error) {
	key, err := keyOf(token)
	if err != nil {
		return tls.Certificate{}, err
	}
	if block, _ := pem.Decode(earlier); block != nil {
		c, err := x509.ParseCertificate(block.Bytes)
		// One that was made while the clock was ahead is not valid yet.
		isGood := err == nil && !time.Now().Before(c.NotBefore) && time.Until(c.NotAfter) > certificate10/10
		if isGood && key.PublicKey.Equal(c.PublicKey) {
			return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}, nil
		}
	}
	// It is valid by each clock, which may be set while this process runs.
	until := time.Now().Add(certificate10)
	if century := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC); until.Before(century) {
		until = century
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: certificateOf},
		NotBefore: time.Unix(0, 0), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// keyOf returns the key that belongs to a token.
func keyOf(token string) (key *ecdsa.PrivateKey, err error) {
	for i := range 16 { // not every number is a key
		sum := sha256.Sum256(fmt.Appendf(nil, "informctl relay key %d\n%s", i, token))
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:]); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// known is what a kubeconfig of an earlier process says.
type known struct {
	token, port string
	certificate []byte // PEM
}

// readKubeconfig returns what a kubeconfig says, nothing if it is not one of Listen, or
// if others could have written or read it: a file beside a database may be of whoever has
// sent that.
func readKubeconfig(path string) (k known) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return known{}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || info.Size() > maxKubeconfig {
		return known{}
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return known{}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return known{}
	}
	config, err := clientcmd.Load(b)
	if err != nil {
		return known{}
	}
	cluster, user := config.Clusters[certificateOf], config.AuthInfos[certificateOf]
	if len(config.Clusters) != 1 || len(config.AuthInfos) != 1 || cluster == nil || user == nil {
		return known{}
	}
	u, err := url.Parse(cluster.Server)
	is := *user
	is.Token, is.LocationOfOrigin, is.Extensions = "", "", nil
	if err != nil || u.Scheme != "https" || u.Hostname() != loopback || len(user.Token) != tokenLength || !reflect.DeepEqual(is, clientcmdapi.AuthInfo{}) {
		return known{}
	}
	return known{token: user.Token, port: u.Port(), certificate: cluster.CertificateAuthorityData}
}

// MayUse reports whether a kubeconfig is not there, or is one that Listen has written.
func MayUse(kubeconfig string) bool {
	_, err := os.Lstat(kubeconfig)
	return os.IsNotExist(err) || readKubeconfig(kubeconfig).token != ""
}

// Answers reports whether a Server is there with the port and the certificate of a
// kubeconfig, which is one that Listen has written.
func Answers(ctx context.Context, kubeconfig string) bool {
	k := readKubeconfig(kubeconfig)
	roots := x509.NewCertPool()
	if k.port == "" || !roots.AppendCertsFromPEM(k.certificate) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: loopback, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(loopback, k.port))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// writeKubeconfig replaces the kubeconfig as a whole.
func (l *Local) writeKubeconfig() error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.pair.Certificate[0]})
	config := clientcmdapi.NewConfig()
	config.Clusters[certificateOf] = &clientcmdapi.Cluster{Server: "https://" + l.listener.Addr().String(), CertificateAuthorityData: ca}
	config.AuthInfos[certificateOf] = &clientcmdapi.AuthInfo{Token: l.Token}
	config.Contexts[certificateOf] = &clientcmdapi.Context{Cluster: certificateOf, AuthInfo: certificateOf}
	config.CurrentContext = certificateOf
	b, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(l.Kubeconfig); err == nil && bytes.Equal(there, b) && MayUse(l.Kubeconfig) {
		return nil // as after a restart: the disk may be full, or only be read, by now
	}
	f, err := os.CreateTemp(filepath.Dir(l.Kubeconfig), "."+filepath.Base(l.Kubeconfig)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), l.Kubeconfig)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Close ends a listener that is not served.
func (l *Local) Close() error { return l.listener.Close() }

// Addr returns where it listens.
func (l *Local) Addr() net.Addr { return l.listener.Addr() }

// Serve serves a Server until ctx ends, and closes it and the listener. It returns when
// all requests have ended.
func (l *Local) Serve(ctx context.Context, s *Server) error {
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHeaders, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{l.pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // a Server logs its own
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.Close() // ends the watches
		waits, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if server.Shutdown(waits) != nil {
			_ = server.Close() // it only says what Serve says
		}
	})
	err := server.ServeTLS(l.listener, "", "")
	if !stop() {
		<-ended
	}
	s.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
