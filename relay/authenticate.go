package relay

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// userName is who shows the token.
const userName = "informctl"

// authenticate returns an error unless a request shows the token and comes from this
// machine, and not from a page in a browser that another site has led here
// (https://github.com/kubernetes/kubernetes/issues/8871).
func (s *Server) authenticate(r *http.Request) error {
	if !isLocal(r.Host) {
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("the host %q is not this machine", r.Host))
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("pages of %q may not read here", origin))
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("nobody can be impersonated here"))
		}
	}
	token := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: userName}}, subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) == 1, nil
	})
	_, ok, err := union.New(bearertoken.New(token), websocket.NewProtocolAuthenticator(token)).AuthenticateRequest(r)
	if err != nil || !ok {
		return apierrors.NewUnauthorized("Unauthorized: the token is in the kubeconfig of this server")
	}
	return nil
}

// isLocal reports whether a Host header is of the loopback.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// isProbe answers who asks whether the server works, which needs no token.
func (s *Server) isProbe(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/livez", "/healthz":
	case "/readyz":
		all := s.collections()
		if len(all) == 0 {
			http.Error(w, "nothing is listed yet", http.StatusServiceUnavailable)
			return true
		}
		for _, c := range all {
			if state, err := c.Reader.History(); err != nil || isListing(state) {
				http.Error(w, "a list is not complete in a file", http.StatusServiceUnavailable)
				return true
			}
		}
	default:
		return false
	}
	_, _ = io.WriteString(w, "ok") // the client may be gone
	return true
}

// maxReview bounds the body of a review, in bytes.
const maxReview = 64 << 10

// reviews are what a user can ask about the own access with.
var reviews = sets.New(
	authorizationv1.Resource("selfsubjectaccessreviews"), authorizationv1.Resource("selfsubjectrulesreviews"),
	authenticationv1.Resource("selfsubjectreviews"),
)

// isReview reports whether a request asks what its user may do.
func isReview(info *request.RequestInfo) bool {
	return info.Verb == "create" && info.APIVersion == "v1" && reviews.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// review says what can be done here: to read what is held.
func (s *Server) review(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	switch review := obj.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status = s.access(review.Spec)
	case *authorizationv1.SelfSubjectRulesReview:
		review.Status = authorizationv1.SubjectRulesReviewStatus{
			Incomplete: true, ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		}
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = authenticationv1.UserInfo{Username: userName}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("a %T is no review", obj))
	}
	responsewriters.WriteObjectNegotiated(scheme.Codecs.WithoutConversion(), negotiation.DefaultEndpointRestrictions, obj.GetObjectKind().GroupVersionKind().GroupVersion(), w, r, http.StatusCreated, obj, false)
	return nil
}

// access returns whether a request would be answered.
func (s *Server) access(spec authorizationv1.SelfSubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	if a := spec.NonResourceAttributes; a != nil {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: a.Verb == "get"}
	}
	a := spec.ResourceAttributes
	if a == nil {
		return authorizationv1.SubjectAccessReviewStatus{Reason: "neither a resource nor a path is asked for"}
	}
	if a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" || a.Subresource != "" {
		return authorizationv1.SubjectAccessReviewStatus{Reason: "informctl serves get, list and watch"}
	}
	_, ok := best(s.collections(), func(c Collection) bool {
		return c.groupResource() == schema.GroupResource{Group: a.Group, Resource: a.Resource} && (a.Version == "" || a.Version == "*" || a.Version == c.Scope.Kind.Version)
	}, a.Namespace)
	if !ok {
		return authorizationv1.SubjectAccessReviewStatus{Reason: "informctl does not hold it"}
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
}
