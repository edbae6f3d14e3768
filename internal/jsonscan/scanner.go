// Package jsonscan reads JSON texts value by value, without decoding what the caller does
// not need. encoding/json reads a whole text twice before it returns the first value.
package jsonscan

import (
	"encoding/json"
	"unicode/utf8"
)

// maxDepth limits the nesting depth, like encoding/json's decoder.
const maxDepth = 10000

// Scanner reads a JSON text from its beginning. After the first error all methods return
// zero values, and OK returns false: a caller checks it once, at the end. A Scanner is
// not safe for concurrent use.
type Scanner struct {
	text  []byte
	at    int
	depth int
	fresh bool // the array or object that was opened last has no element yet
	bad   bool
}

// New returns a Scanner of a text, which must not change while it is used.
func New(text []byte) *Scanner { return &Scanner{text: text} }

// OK reports whether everything that was read is well-formed.
func (s *Scanner) OK() bool { return !s.bad }

// Truncated reports whether the text ended where more of it was expected.
func (s *Scanner) Truncated() bool { return s.bad && s.at >= len(s.text) }

// Offset returns the number of bytes that were read.
func (s *Scanner) Offset() int { return s.at }

// Advance passes a value of a size in bytes, which the caller has read.
func (s *Scanner) Advance(size int) { s.at += size }

// Next skips white space and returns the byte that a value, or the end of an array or
// object, begins with. It returns 0 at the end of the text.
func (s *Scanner) Next() byte {
	for ; !s.bad && s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		case 0:
			s.bad = true // it is not the end
			return 0
		default:
			return c
		}
	}
	return 0
}

// Fail makes the text malformed for this Scanner.
func (s *Scanner) Fail() { s.bad = true }

// expect reads a byte.
func (s *Scanner) expect(c byte) {
	if s.Next() != c {
		s.bad = true
		return
	}
	s.at++
}

// Open reads the '{' or '[' that an object or array begins with. A loop over More follows
// it.
func (s *Scanner) Open(c byte) {
	s.expect(c)
	if s.depth++; s.depth > maxDepth {
		s.bad = true
	}
	s.fresh = true
}

// More reads what stands before the next element, or the end of the object or array,
// which is '}' or ']'. It reports whether there is another element.
func (s *Scanner) More(end byte) bool {
	isFirst := s.fresh
	s.fresh = false
	switch c := s.Next(); {
	case s.bad || c == 0:
		s.bad = true
		return false
	case c == end:
		s.at++
		s.depth--
		return false
	case isFirst:
		return true
	case c == ',':
		s.at++
		return true
	}
	s.bad = true
	return false
}

// Key reads the name of a member of an object, up to its value.
func (s *Scanner) Key() []byte {
	key := s.String()
	s.expect(':')
	return key
}

// String reads a string and returns its content, which refers to the text unless it has
// escape sequences. A string that is not valid UTF-8 is malformed: encoding/json replaces
// a part of it.
func (s *Scanner) String() []byte {
	s.expect('"')
	begin, escaped, ascii := s.at, false, true
	for ; !s.bad && s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.content(s.text[begin-1:s.at], escaped, ascii)
		case c == '\\':
			escaped = true
			s.at++ // content finds out what it is
		case c < ' ':
			s.bad = true
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.bad = true
	return nil
}

// content returns the content of a quoted string.
func (s *Scanner) content(quoted []byte, escaped, ascii bool) []byte {
	if !ascii && !utf8.Valid(quoted) {
		s.bad = true
		return nil
	}
	if !escaped {
		return quoted[1 : len(quoted)-1]
	}
	var decoded string
	if json.Unmarshal(quoted, &decoded) != nil {
		s.bad = true
		return nil
	}
	return []byte(decoded)
}

// Number reads a number and returns its text.
func (s *Scanner) Number() []byte {
	s.Next()
	begin := s.at
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.at++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		s.digits()
	}
	if s.bad {
		return nil
	}
	return s.text[begin:s.at]
}

// peek returns the next byte, 0 at the end.
func (s *Scanner) peek() byte {
	if s.bad || s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// digits reads one digit or more.
func (s *Scanner) digits() {
	begin := s.at
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.at++
	}
	s.bad = s.bad || s.at == begin
}

// Literal reads true, false or null.
func (s *Scanner) Literal(literal string) {
	s.Next()
	for i := 0; i < len(literal) && !s.bad; i++ {
		if s.bad = s.peek() != literal[i]; !s.bad {
			s.at++
		}
	}
}

// Skip reads any value.
func (s *Scanner) Skip() {
	switch c := s.Next(); c {
	case '{':
		for s.Open('{'); s.More('}'); {
			s.Key()
			s.Skip()
		}
	case '[':
		for s.Open('['); s.More(']'); {
			s.Skip()
		}
	case '"':
		_ = s.String()
	case 't':
		s.Literal("true")
	case 'f':
		s.Literal("false")
	case 'n':
		s.Literal("null")
	default:
		s.Number()
	}
}
