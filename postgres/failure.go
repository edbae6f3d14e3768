package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The codes of PostgreSQL that this package tells apart.
const (
	lockNotAvailable    = "55P03"
	readOnlyTransaction = "25006"
	uniqueViolation     = "23505"
	undefinedTable      = "42P01"
	invalidSchema       = "3F000"
	noPrivilege         = "42501"
)

func codeOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isRefused reports whether the database would answer a statement in the same way again:
// it refuses the data, the statement or the role.
func isRefused(err error) bool {
	code := codeOf(err)
	if code == "" || code == uniqueViolation {
		return false
	}
	switch code[:2] {
	case "21", "22", "23", "42", "54", "3F":
		return true
	}
	return false
}

// isOfData reports whether a statement was refused because of a value in it: the same
// statement is fine with another one.
func isOfData(err error) bool {
	return isRefused(err) && slices.Contains([]string{"21", "22", "23", "54"}, codeOf(err)[:2])
}

// isOfServer reports whether the connections of a pool may all be to a server that cannot
// be used any more, as after a switchover.
func isOfServer(err error) bool {
	code := codeOf(err)
	return code == readOnlyTransaction || strings.HasPrefix(code, "57P0") || strings.HasPrefix(code, "08")
}

// IsUnreachable reports whether an error of Open says that the database did not answer,
// is starting or ending, or has too little of something, as of connections, so that it is
// worth another try.
func IsUnreachable(err error) bool {
	if isOfServer(err) || strings.HasPrefix(codeOf(err), "53") {
		return true
	}
	var connect *pgconn.ConnectError
	var network *net.OpError
	if isOfCertificate(err) || errors.As(err, &network) && network.Op == "remote error" {
		return false
	}
	isCut := errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return isCut && codeOf(err) == ""
}

// isOfCertificate reports whether the certificate of the server is not accepted.
func isOfCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &invalid)
}

// isFinal reports whether a publisher's statement would end in the same way if it were
// tried again.
func isFinal(err error) bool {
	return isRefused(err) || errors.Is(err, errFenced) || errors.Is(err, errMoved) || errors.Is(err, errCheck) || errors.Is(err, ErrSchema)
}

// isOver reports whether the context has ended.
func isOver(ctx context.Context) bool { return ctx.Err() != nil }

// pause waits, and reports whether the context still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
