package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/informctl/informctl/internal/jsonscan"
)

var texts = []string{
	`{}`, `[]`, `null`, `true`, ` false `, `0`, `-0`, `1.5e-3`, `1E+2`, `"a"`, `"\u00e9\ud83d\ude00\ud800\n\"\\\/"`,
	`{"a":[1,{"b":null}],"":"x"}`, "[\n\t1 , 2 ]", `"é"`,
	``, ` `, `{`, `[`, `"`, `"\`, `"\q"`, "\"\n\"", `01`, `-`, `1.`, `.5`, `1e`, `+1`, `nul`, `nulll`, `[1,]`, `[,1]`,
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{1:2}`, `[1 2]`, `[1}`, `{"a":1]`, `}`, `1 2`, "\"\xff\"", "\x00",
}

// isValid reports whether text is one value and white space.
func isValid(text []byte) bool {
	s := jsonscan.New(text)
	s.Skip()
	return s.Next() == 0 && s.OK() && s.Offset() == len(text)
}

func TestSkip(t *testing.T) {
	for _, text := range texts {
		if got, want := isValid([]byte(text)), json.Valid([]byte(text)) && utf8.ValidString(text); got != want {
			t.Errorf("%q: valid %t, want %t", text, got, want)
		}
	}
	for _, depth := range []int{10000, 10001} {
		text := append(bytes.Repeat([]byte("["), depth), bytes.Repeat([]byte("]"), depth)...)
		if got, want := isValid(text), json.Valid(text); got != want {
			t.Errorf("depth %d: valid %t, want %t", depth, got, want)
		}
	}
}

func TestTruncated(t *testing.T) {
	const text = `{"a":[1,true,null,"\u00e9x",{"b":-1.5e+3}],"c":"é"}`
	for end := range len(text) {
		s := jsonscan.New([]byte(text[:end]))
		if s.Skip(); s.OK() || !s.Truncated() {
			t.Errorf("%q: truncated %t", text[:end], s.Truncated())
		}
		s = jsonscan.New([]byte(text[:end] + "\x01\x01 "))
		if s.Skip(); s.OK() || s.Truncated() {
			t.Errorf("%q and control characters: truncated", text[:end])
		}
	}
}

func FuzzSkip(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := isValid(text), json.Valid(text) && utf8.Valid(text); got != want {
			t.Errorf("%q: valid %t, want %t", text, got, want)
		}
		s := jsonscan.New(text)
		content := s.String()
		var want string
		if isString := s.Next() == 0 && s.OK(); isString != (isValid(text) && json.Unmarshal(text, &want) == nil && !bytes.Equal(bytes.TrimSpace(text), []byte("null"))) {
			t.Errorf("%q: string %t", text, isString)
		} else if isString && string(content) != want {
			t.Errorf("%q: %q, want %q", text, content, want)
		}
	})
}
