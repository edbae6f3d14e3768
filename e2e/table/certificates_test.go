package table_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/utils/ptr"
)

// issuer makes requests and certificates, which the server checks, for one key.
type issuer struct {
	key         crypto.Signer
	request     []byte // DER
	certificate *x509.Certificate
}

func (w *world) newIssuer() issuer {
	w.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		w.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: begin, NotAfter: begin.Add(2 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		w.Fatal(err)
	}
	return issuer{key, request, certificate}
}

func (i issuer) pemCertificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})
}

// loadCertificates creates the objects of certificates.k8s.io. Some of their states need
// certificates of the day, or more than one request.
func (w *world) loadCertificates() {
	w.Helper()
	client := w.typed.CertificatesV1()
	i := w.newIssuer()
	for name, state := range signingStates(i) {
		w.createSigning(client.CertificateSigningRequests(), i, name, state)
	}
	for name, state := range podCertificateStates(i) {
		w.createPodCertificate(client.PodCertificateRequests(metav1.NamespaceDefault), i, name, state)
	}
	for name, signer := range map[string]string{"without-signer": "", "example.com:signer:roots": "example.com/signer"} {
		bundle := &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(i.pemCertificate())},
		}
		if _, err := client.ClusterTrustBundles().Create(w.Context(), bundle, metav1.CreateOptions{}); err != nil {
			w.Error(err)
		}
		w.created["clustertrustbundles.certificates.k8s.io"]++
	}
}

// signingState is a state of a CertificateSigningRequest.
type signingState struct {
	seconds     *int32
	conditions  []certificatesv1.RequestConditionType
	certificate []byte
}

func signingStates(i issuer) map[string]signingState {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	type conditions = []certificatesv1.RequestConditionType
	return map[string]signingState{
		"pending":         {},
		"pending-failed":  {conditions: conditions{failed}},
		"pending-other":   {conditions: conditions{"Other"}, seconds: ptr.To[int32](600)},
		"approved":        {conditions: conditions{approved}, seconds: ptr.To[int32](3600)},
		"approved-failed": {conditions: conditions{failed, approved}, seconds: ptr.To[int32](86400 * 365)},
		"issued":          {conditions: conditions{approved}, certificate: i.pemCertificate()},
		"denied":          {conditions: conditions{denied}, seconds: ptr.To[int32](100000)},
		"denied-failed":   {conditions: conditions{denied, failed}},
	}
}

func (w *world) createSigning(client certificatesclient.CertificateSigningRequestInterface, i issuer, name string, state signingState) {
	w.Helper()
	r, err := client.Create(w.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: i.request}),
			SignerName: "example.com/signer", ExpirationSeconds: state.seconds, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	w.created["certificatesigningrequests.certificates.k8s.io"]++
	if err == nil && len(state.conditions) > 0 {
		for _, c := range state.conditions {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: c, Status: corev1.ConditionTrue, Reason: "Test",
			})
		}
		r, err = client.UpdateApproval(w.Context(), name, r, metav1.UpdateOptions{})
	}
	if err == nil && state.certificate != nil {
		r.Status.Certificate = state.certificate
		_, err = client.UpdateStatus(w.Context(), r, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Errorf("certificate signing request %q: %v", name, err)
	}
}

// podCertificateState is a state of a PodCertificateRequest.
type podCertificateState struct {
	annotations map[string]string
	status      certificatesv1.PodCertificateRequestStatus
}

func podCertificateStates(i issuer) map[string]podCertificateState {
	with := func(condition string) certificatesv1.PodCertificateRequestStatus {
		return certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{
			Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
		}}}
	}
	issued := with(certificatesv1.PodCertificateRequestConditionTypeIssued)
	issued.CertificateChain = string(i.pemCertificate())
	issued.NotBefore = ptr.To(metav1.NewTime(i.certificate.NotBefore))
	issued.NotAfter = ptr.To(metav1.NewTime(i.certificate.NotAfter))
	issued.BeginRefreshAt = ptr.To(metav1.NewTime(i.certificate.NotBefore.Add(time.Hour)))
	return map[string]podCertificateState{
		"pending": {},
		"denied":  {status: with(certificatesv1.PodCertificateRequestConditionTypeDenied), annotations: map[string]string{"example.com/b": "two words", "example.com/a": ""}},
		"failed":  {status: with(certificatesv1.PodCertificateRequestConditionTypeFailed), annotations: map[string]string{}},
		"issued":  {status: issued, annotations: map[string]string{"example.com/a": "one"}},
	}
}

func (w *world) createPodCertificate(client certificatesclient.PodCertificateRequestInterface, i issuer, name string, state podCertificateState) {
	w.Helper()
	r, err := client.Create(w.Context(), &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", PodName: "web", PodUID: "u-1", ServiceAccountName: "builder", ServiceAccountUID: "u-2",
			NodeName: types.NodeName("n-1"), NodeUID: "u-3", MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: i.request,
			UnverifiedUserAnnotations: state.annotations,
		},
	}, metav1.CreateOptions{})
	w.created["podcertificaterequests.certificates.k8s.io"]++
	if err == nil && len(state.status.Conditions) > 0 {
		r.Status = state.status
		_, err = client.UpdateStatus(w.Context(), r, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Errorf("pod certificate request %q: %v", name, err)
	}
}
