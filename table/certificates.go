package table

import (
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

var certificateSigningRequest = kindOf(certificateSigningRequestCells,
	always("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"))

func certificateSigningRequestCells(r *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	requested := none
	if s := r.Spec.ExpirationSeconds; s != nil {
		requested = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{
		r.Name, age(r.CreationTimestamp, now), or(r.Spec.SignerName, none), r.Spec.Username, requested,
		signingStatus(&r.Status),
	}
}

// signingStatus returns what was decided on a request, and what has come of it.
func signingStatus(s *certificatesv1.CertificateSigningRequestStatus) string {
	has := func(condition certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(s.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == condition
		})
	}
	status := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		status = "Denied"
	case has(certificatesv1.CertificateApproved):
		status = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		status += ",Failed"
	}
	if len(s.Certificate) > 0 {
		status += ",Issued"
	}
	return status
}

var clusterTrustBundle = kindOf(clusterTrustBundleCells, always("Name", "SignerName"))

func clusterTrustBundleCells(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
	return []any{b.Name, or(b.Spec.SignerName, none)}
}

var podCertificateRequest = kindOf(podCertificateRequestCells,
	always("Name", "PodName", "ServiceAccountName", "NodeName", "SignerName", "State", "UnverifiedUserAnnotations"))

func podCertificateRequestCells(r *certificatesv1.PodCertificateRequest, _ time.Time) []any {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued,
			certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = c.Type
		}
	}
	return []any{
		r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
		labels.FormatLabels(r.Spec.UnverifiedUserAnnotations),
	}
}
