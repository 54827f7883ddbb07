// Package mesherr types the errors of the mesh: by a reason of gymmesh.errors.v1, whose rule (the
// status code, the boundary, whether a retry is safe) is read from the contract's descriptors.
package mesherr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
)

// Domain is the domain of the mesh's ErrorInfo.
const Domain = "gymmesh"

const prefix = "ERROR_REASON_"

// Error is a failed call or rollout.
type Error struct {
	// Reason is UNSPECIFIED for a reason of a later contract; ReasonName has its name then.
	Reason errorsv1.ErrorReason
	// ReasonName is the reason as ErrorInfo has it, such as `QUEUE_FULL`.
	ReasonName string
	// Code is the status code.
	Code codes.Code
	// Message is a sentence for people.
	Message string
	// RetrySafe says whether the same may succeed when it is tried again, with new ids.
	RetrySafe bool
	// Boundary is where a rollout that meets this failed; UNSPECIFIED: the step decides.
	Boundary rolloutv1.Boundary
	// Metadata is what errors.proto lists for the reason.
	Metadata map[string]string
	// RetryAfter is how long the failing side asked to wait; zero: it did not say.
	RetryAfter time.Duration
	// Details are those of the status besides ErrorInfo and RetryInfo, such as ModelUsage.
	Details []*anypb.Any
}

// Rule returns the rule of a reason; nil if the contract does not have the reason.
func Rule(reason errorsv1.ErrorReason) *errorsv1.ReasonRule {
	value := reason.Descriptor().Values().ByNumber(reason.Number())
	if value == nil || reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return nil
	}
	rule, _ := proto.GetExtension(value.Options(), errorsv1.E_Rule).(*errorsv1.ReasonRule)
	return rule
}

// New returns an error for a server to answer with, or for a client to end with. Metadata is given
// as alternating keys and values.
func New(reason errorsv1.ErrorReason, message string, metadata ...string) *Error {
	err := &Error{Reason: reason, Message: message, Metadata: make(map[string]string)}
	for i := 0; i+1 < len(metadata); i += 2 {
		err.Metadata[metadata[i]] = metadata[i+1]
	}
	err.follow(Rule(reason))
	return err
}

// follow fills in what the reason's rule says.
func (e *Error) follow(rule *errorsv1.ReasonRule) {
	e.ReasonName = strings.TrimPrefix(e.Reason.String(), prefix)
	e.RetrySafe = rule.GetRetrySafe()
	e.Boundary = rule.GetBoundary()
	if e.Code == codes.OK {
		e.Code = codes.Code(rule.GetCode())
	}
}

func (e *Error) Error() string { return e.ReasonName + ": " + e.Message }

// Is lets errors.Is find errors of one reason: errors.Is(err, mesherr.New(reason, "")).
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Reason == e.Reason
}

// GRPCStatus returns the status that a server sends when a handler returns the error.
func (e *Error) GRPCStatus() *status.Status { return status.FromProto(e.Status()) }

// Status returns the error as a status with exactly one ErrorInfo.
func (e *Error) Status() *spb.Status {
	said := &spb.Status{Code: int32(e.Code), Message: strings.ToValidUTF8(e.Message, "?")}
	info := &errdetails.ErrorInfo{
		Reason: e.ReasonName, Domain: Domain, Metadata: maps.Clone(e.Metadata),
	}
	said.Details = append(said.Details, packed(info))
	if e.RetryAfter > 0 {
		said.Details = append(said.Details,
			packed(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}))
	}
	said.Details = append(said.Details, e.Details...)
	return said
}

func packed(message proto.Message) *anypb.Any {
	detail, err := anypb.New(message)
	if err != nil { // text that is not UTF-8
		return &anypb.Any{}
	}
	return detail
}

// FromError converts the error of a call to an *Error; nil for nil.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	// Not by status.FromError, which puts the words of what wraps the status into its message.
	var said interface{ GRPCStatus() *status.Status }
	if errors.As(err, &said) {
		return named(FromStatus(said.GRPCStatus().Proto()))
	}
	return FromStatus(status.FromContextError(contextError(err)).Proto())
}

// named says what may be behind a connection that ends before the server speaks.
func named(err *Error) *Error {
	if err.Code == codes.Unavailable && strings.Contains(err.Message, "error reading server preface") {
		err.Message += " (the server closed the connection before it said anything: does it use TLS, " +
			"and this client none?)"
	}
	return err
}

// contextError is the context's error in an error, or the error itself.
func contextError(err error) error {
	for _, one := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, one) {
			return one
		}
	}
	return err
}

// FromStatus types a status; one without an ErrorInfo of the mesh goes by its code.
func FromStatus(said *spb.Status) *Error {
	err := &Error{Code: codes.Code(said.GetCode()), Message: said.GetMessage()}
	named := false
	for _, detail := range said.GetDetails() {
		message, fault := detail.UnmarshalNew()
		if fault != nil { // of a later contract, or no message at all
			err.Details = append(err.Details, detail)
			continue
		}
		switch message := message.(type) {
		case *errdetails.ErrorInfo:
			if message.GetDomain() == Domain && !named {
				named = true
				err.ReasonName, err.Metadata = message.GetReason(), message.GetMetadata()
				continue
			}
		case *errdetails.RetryInfo:
			err.RetryAfter = message.GetRetryDelay().AsDuration()
			continue
		}
		err.Details = append(err.Details, detail)
	}
	if !named {
		err.Reason = reasonOfCode(err.Code, err.Message)
		err.follow(Rule(err.Reason))
		return err
	}
	number, known := errorsv1.ErrorReason_value[prefix+err.ReasonName]
	if known && number != 0 {
		err.Reason = errorsv1.ErrorReason(number)
		err.follow(Rule(err.Reason))
	} else {
		err.RetrySafe = mayPass(err.Code)
	}
	return err
}

// mayPass says of a code alone whether the same may succeed when it is tried again.
func mayPass(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal,
		codes.Unknown, codes.Canceled:
		return true
	default:
		return false
	}
}

// reasonOfCode says what a bare status means: a proxy's, the gRPC library's, or that of a server
// that does not follow the contract.
func reasonOfCode(code codes.Code, message string) errorsv1.ErrorReason {
	switch code {
	case codes.Unavailable, codes.Canceled:
		return errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE
	case codes.DeadlineExceeded:
		return errorsv1.ErrorReason_ERROR_REASON_DEADLINE_PASSED
	case codes.Unimplemented:
		return errorsv1.ErrorReason_ERROR_REASON_NOT_OFFERED
	case codes.Unauthenticated:
		return errorsv1.ErrorReason_ERROR_REASON_CREDENTIAL_INVALID
	case codes.PermissionDenied:
		return errorsv1.ErrorReason_ERROR_REASON_NOT_PERMITTED
	case codes.InvalidArgument:
		return errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID
	case codes.ResourceExhausted:
		if speaksOfSize(message) {
			return errorsv1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE
		}
		return errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL
	default:
		return errorsv1.ErrorReason_ERROR_REASON_INTERNAL_FAULT
	}
}

func speaksOfSize(message string) bool {
	message = strings.ToLower(message)
	for _, words := range []string{"larger than", "too large", "size", "message length"} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// Failure returns the error as a rollout's failure. The boundary counts where the reason leaves it
// open.
func (e *Error) Failure(boundary rolloutv1.Boundary) *rolloutv1.Failure {
	if e.Boundary != rolloutv1.Boundary_BOUNDARY_UNSPECIFIED {
		boundary = e.Boundary
	}
	return &rolloutv1.Failure{Boundary: boundary, Status: e.Status(), RetrySafe: e.RetrySafe}
}

// FromFailure types a rollout's failure, which has the last word on whether a retry is safe.
func FromFailure(failure *rolloutv1.Failure) *Error {
	err := FromStatus(failure.GetStatus())
	err.Boundary = failure.GetBoundary()
	err.RetrySafe = failure.GetRetrySafe()
	return err
}

// Describe puts a failure into words, such as `MODEL: MODEL_TIMEOUT: …`.
func Describe(failure *rolloutv1.Failure) string {
	boundary := strings.TrimPrefix(failure.GetBoundary().String(), "BOUNDARY_")
	return fmt.Sprintf("%s: %s", boundary, FromFailure(failure))
}
