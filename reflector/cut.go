package reflector

import "errors"

// IsCut reports whether an error that Options.OnError has received says only that a watch
// is over: that it ended before its timeout, also at once, or that nothing was heard of
// it after. The probe that follows finds out whether the server can be reached.
func IsCut(err error) bool {
	return errors.Is(err, errClosedAtOnce) || errors.Is(err, errClosedEarly) || errors.Is(err, errStalled)
}
