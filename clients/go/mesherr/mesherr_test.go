package mesherr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

func TestVectors(t *testing.T) {
	var cases []struct {
		Reason    string
		Number    int32
		Code      string
		RetrySafe bool `json:"retry_safe"`
		Boundary  string
	}
	vectors.Read(t, "errors.json", &cases)
	if len(cases) != len(errorsv1.ErrorReason_name)-1 {
		t.Fatalf("%d cases, %d reasons", len(cases), len(errorsv1.ErrorReason_name)-1)
	}
	for _, one := range cases {
		t.Run(one.Reason, func(t *testing.T) {
			reason := errorsv1.ErrorReason(one.Number)
			want := New(reason, "a sentence", "key", "value")
			want.RetryAfter = 1500 * time.Millisecond
			got := FromError(fmt.Errorf("a call: %w", want.GRPCStatus().Err()))
			if got.Reason != reason || got.ReasonName != one.Reason || got.Message != "a sentence" {
				t.Errorf("%v", got)
			}
			if int32(got.Code) != code.Code_value[one.Code] || got.RetrySafe != one.RetrySafe {
				t.Errorf("code %v, retry_safe %v", got.Code, got.RetrySafe)
			}
			if strings.TrimPrefix(got.Boundary.String(), "BOUNDARY_") != one.Boundary {
				t.Errorf("boundary %v", got.Boundary)
			}
			if got.Metadata["key"] != "value" || got.RetryAfter != want.RetryAfter || len(got.Details) != 0 {
				t.Errorf("metadata %v, wait %v, details %v", got.Metadata, got.RetryAfter, got.Details)
			}
			if !errors.Is(got, New(reason, "")) {
				t.Error("it is not found by its reason")
			}
		})
	}
}

func TestBareCodes(t *testing.T) {
	for _, one := range []struct {
		code    codes.Code
		message string
		want    string
		safe    bool
	}{
		{codes.Unavailable, "", "PEER_UNAVAILABLE", true},
		{codes.Canceled, "", "PEER_UNAVAILABLE", true},
		{codes.DeadlineExceeded, "", "DEADLINE_PASSED", true},
		{codes.Unimplemented, "", "NOT_OFFERED", false},
		{codes.Unauthenticated, "", "CREDENTIAL_INVALID", false},
		{codes.PermissionDenied, "", "NOT_PERMITTED", false},
		{codes.InvalidArgument, "", "FIELD_INVALID", false},
		{codes.ResourceExhausted, "grpc: received message larger than max", "MESSAGE_TOO_LARGE", false},
		{codes.ResourceExhausted, "too many streams", "QUEUE_FULL", true},
		{codes.DataLoss, "", "INTERNAL_FAULT", true},
	} {
		got := FromError(status.Error(one.code, one.message))
		rule := Rule(got.Reason)
		if got.ReasonName != one.want || got.Code != one.code || got.RetrySafe != rule.GetRetrySafe() {
			t.Errorf("%v %q: %v (%v, %v)", one.code, one.message, got, got.Code, got.RetrySafe)
		}
	}
	if got := FromError(context.DeadlineExceeded); got.ReasonName != "DEADLINE_PASSED" {
		t.Errorf("%v", got)
	}
	if FromError(nil) != nil {
		t.Error("no error is one")
	}
}

func TestAReasonOfALaterContractGoesByItsCode(t *testing.T) {
	for code, safe := range map[codes.Code]bool{codes.Unavailable: true, codes.NotFound: false} {
		said := New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "")
		said.ReasonName, said.Code = "LATER", code
		got := FromStatus(said.Status())
		if got.Reason != 0 || got.ReasonName != "LATER" || got.RetrySafe != safe {
			t.Errorf("%v: %+v", code, got)
		}
	}
}

func TestTheFailureHasTheLastWord(t *testing.T) {
	failure := New(errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "gone").
		Failure(rolloutv1.Boundary_BOUNDARY_AGENT)
	failure.RetrySafe = false
	got := FromFailure(failure)
	if got.RetrySafe || got.Boundary != rolloutv1.Boundary_BOUNDARY_AGENT {
		t.Errorf("%+v", got)
	}
	if FromFailure(&rolloutv1.Failure{Status: &spb.Status{}}).RetrySafe {
		t.Error("a failure that says nothing is retried")
	}
}

func TestDetailsOfALaterContractAreKept(t *testing.T) {
	said := New(errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL, "full").Status()
	later := &anypb.Any{TypeUrl: "type.googleapis.com/gymmesh.errors.v1.Later", Value: []byte{8, 1}}
	odd := &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: []byte{255}}
	said.Details = append(said.Details, later, odd)
	got := FromStatus(FromStatus(said).Status())
	if len(got.Details) != 2 || !proto.Equal(got.Details[0], later) || got.ReasonName != "QUEUE_FULL" {
		t.Errorf("%+v", got)
	}
}
