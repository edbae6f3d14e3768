package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/informctl/informctl/reflector"
)

// Request is one request that the API server received, as recorded in its audit log.
type Request struct {
	// Verb is the Kubernetes verb: get, list, watch, create, update, patch, delete, ...
	Verb        string
	Group       string
	Resource    string
	Subresource string
	// Namespace is empty for a request for all namespaces.
	Namespace string
	Name      string
	UserAgent string
	// URI is the path and the query.
	URI string
	// Code is the HTTP status, 0 until it is known.
	Code int
	// Stage is the last stage that the request reached: RequestReceived, ResponseStarted
	// (of a watch), ResponseComplete or Panic.
	Stage    string
	Received time.Time
}

// IsList reports whether the request is a list, by pages or by a watch, and not the probe
// of a start that has stored objects. A streamed list of a few seconds is such a probe.
func (r Request) IsList() bool {
	q := r.Query()
	if q.Get("sendInitialEvents") == "true" {
		return q.Get("timeoutSeconds") != "5"
	}
	return r.Verb == "list" && q.Get("limit") != "1" && q.Get("limit") != strconv.Itoa(reflector.WholeLimit)
}

// Query returns the parameters of the URI, such as limit or resourceVersion. Parameters
// that cannot be parsed are left out.
func (r Request) Query() url.Values {
	u, err := url.Parse(r.URI)
	if err != nil {
		return nil
	}
	return u.Query()
}

// auditEvent contains the fields of an audit.k8s.io/v1 Event that are used. A request has
// one event for each stage.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	RequestURI string `json:"requestURI"`
	ObjectRef  struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// Requests returns the requests received at since or later, in the order of their
// arrival. It includes requests to API servers before a restart and leaves out health
// checks and the API server's requests to itself. A request that has been answered is in
// the result, but for a moment its Stage and Code may be those of an earlier stage.
// Requests reads the whole log, which takes seconds after tens of thousands of requests.
func (c *ControlPlane) Requests(since time.Time) ([]Request, error) {
	f, err := os.Open(c.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer f.Close()
	var requests []Request
	index := map[string]int{} // position in requests by audit ID
	since = since.Truncate(time.Microsecond)
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// The server is still writing the text after the last newline.
			return requests, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("parse the audit log: %w", err)
		}
		if event.Received.Before(since) {
			continue
		}
		at, ok := index[event.AuditID]
		if !ok {
			at = len(requests)
			index[event.AuditID] = at
			requests = append(requests, Request{})
		}
		requests[at] = event.request()
	}
}

func (e auditEvent) request() Request {
	return Request{
		Verb:        e.Verb,
		Group:       e.ObjectRef.APIGroup,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		UserAgent:   e.UserAgent,
		URI:         e.RequestURI,
		Code:        e.ResponseStatus.Code,
		Stage:       e.Stage,
		Received:    e.Received,
	}
}

func (c *ControlPlane) auditLog() string { return c.path("audit.log") }
