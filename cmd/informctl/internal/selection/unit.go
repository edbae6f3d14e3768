package selection

import (
	"errors"
	"strconv"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

// unit is what the results of an aggregate are printed in, all of them in the same, so
// that a column can be compared and sorted. As in kubectl top it is m for what comes in
// thousandths and Mi for bytes, whatever the size of the results. It is the largest unit
// of the values that they are calculated from.
type unit int

const (
	ones unit = iota
	milli
	mebi
)

// measure is a value of an object with its unit.
type measure struct {
	resource.Quantity
	unit unit
}

// unitOf returns the unit of a value, which q is. A value in M may be bytes or a large
// number of something else in its canonical form, so it is not taken for bytes.
func unitOf(value string, q resource.Quantity) unit {
	switch {
	case q.Format == resource.BinarySI:
		return mebi
	case strings.HasSuffix(value, "m"), strings.HasSuffix(value, "u"), strings.HasSuffix(value, "n"):
		return milli
	}
	return ones
}

// maxExponent is the largest decimal exponent of a number, which all digits are made of.
const maxExponent = 30

// parseQuantity returns the quantity or number that a text is. Some text in an object may
// look like one of more digits than there is memory for, as 1e999999999: that is no
// number.
func parseQuantity(text string) (resource.Quantity, error) {
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(text[i+1:])
		if errors.Is(err, strconv.ErrRange) || exponent < -maxExponent || exponent > maxExponent {
			return resource.Quantity{}, resource.ErrFormatWrong
		}
	}
	return resource.ParseQuantity(text)
}

// text returns a quantity in the unit, with at most three decimals.
func (u unit) text(q resource.Quantity) string {
	d, suffix := new(inf.Dec).Set(q.AsDec()), ""
	switch u {
	case milli:
		d, suffix = d.Mul(d, inf.NewDec(1000, 0)), "m"
	case mebi:
		d, suffix = d.QuoRound(d, inf.NewDec(1<<20, 0), decimals, inf.RoundHalfUp), "Mi"
	}
	text := d.Round(d, decimals, inf.RoundHalfUp).String()
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + suffix
}

// decimals is how many decimals a result has at most.
const decimals = 3
