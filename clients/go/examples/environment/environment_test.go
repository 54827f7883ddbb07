package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	resourcev1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/resource/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	verifyv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/verify/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

func open(t *testing.T, service *service) string {
	t.Helper()
	made, err := service.CreateSession(t.Context(), &resourcev1.CreateSessionRequest{
		Task: service.examples[0], RequestId: t.Name(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetSessionId()
}

func TestPartialCredit(t *testing.T) {
	for _, one := range []struct {
		calls  []string
		answer string
		reward float64
	}{
		{nil, "", 0},
		{[]string{`{"item":"bread","count":3}`, `{"item":"tea"}`}, "4", 1},
		{[]string{`{"item":"bread","count":3}`, `{"item":"tea"}`}, "There are 4.", 0.8},
		{[]string{`{"item":"bread","count":3}`}, "4", 0.6},
		{[]string{`{"item":"bread","count":3}`, `{"item":"rice"}`, `{"item":"tea"}`}, "", 0.8 * 2 / 3},
		{nil, "4", 0.2},
		{nil, "-4", 0},
		{nil, "4.5", 0},
		{nil, "4.", 0.2},
	} {
		t.Run(fmt.Sprint(one.calls, one.answer), func(t *testing.T) {
			service := newService("pantry", "i", 0)
			session := open(t, service)
			for i, arguments := range one.calls {
				answer, err := service.CallTool(t.Context(), &resourcev1.CallToolRequest{
					SessionId: session, Name: "stock", Arguments: []byte(arguments), RequestId: fmt.Sprint(i),
				})
				if err != nil || answer.GetOutcome() != rolloutv1.ToolOutcome_TOOL_OUTCOME_OK {
					t.Fatal(answer, err)
				}
			}
			verdict, err := service.Verify(t.Context(), &verifyv1.VerifyRequest{
				SessionId: session, Task: service.examples[0],
				Transcript: []*responsesv1.Item{codec.NewMessage("assistant", one.answer)},
				StopReason: rolloutv1.StopReason_STOP_REASON_MODEL_FINISHED,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := verdict.GetVerification().GetReward(); got < one.reward-1e-9 || got > one.reward+1e-9 {
				t.Errorf("%v, not %v", got, one.reward)
			}
		})
	}
}

func TestAuditsHaveTheRightAnswersWhereTheOperatorSaysSo(t *testing.T) {
	service := newService("pantry", "i", 0)
	request := &verifyv1.GetExpectedRequest{Task: service.examples[0]}
	_, err := service.GetExpected(t.Context(), request)
	if !errors.Is(err, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_NOT_PERMITTED, "")) {
		t.Error(err)
	}
	service.audit = true
	got, err := service.GetExpected(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	items := got.GetAnswers()[0].GetItems()
	session := open(t, service)
	for i, item := range items[:len(items)-1] {
		call := item.GetFunctionCall()
		if _, err := service.CallTool(t.Context(), &resourcev1.CallToolRequest{
			SessionId: session, Name: call.GetName(), Arguments: call.GetArguments(), RequestId: fmt.Sprint(i),
		}); err != nil {
			t.Fatal(err)
		}
	}
	verdict, err := service.Verify(t.Context(), &verifyv1.VerifyRequest{
		SessionId: session, Task: service.examples[0], Transcript: items[len(items)-1:],
		StopReason: rolloutv1.StopReason_STOP_REASON_MODEL_FINISHED,
	})
	if err != nil || verdict.GetVerification().GetReward() != 1 {
		t.Error(verdict, err)
	}
}

func TestARepeatActsOnce(t *testing.T) {
	var o serving.Once[int]
	runs := 0
	run := func() (int, *mesherr.Error) { runs++; return runs, nil }
	var repeats sync.WaitGroup
	for range 20 {
		repeats.Go(func() {
			if got, err := o.Do(t.Context(), "id", wrapperspb.String("a"), run, serving.NothingWasDone); got != 1 || err != nil {
				t.Error(got, err)
			}
		})
	}
	repeats.Wait()
	_, err := o.Do(t.Context(), "id", wrapperspb.String("b"), run, serving.NothingWasDone)
	if !errors.Is(err, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, "")) {
		t.Error(err)
	}
	for i := range serving.AnswersKept {
		if _, err := o.Do(t.Context(), fmt.Sprint(i), wrapperspb.String("a"), run, serving.NothingWasDone); err != nil {
			t.Fatal(err)
		}
	}
	_, err = o.Do(t.Context(), "id", wrapperspb.String("a"), run, serving.NothingWasDone)
	if !errors.Is(err, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SESSION_STATE, "")) {
		t.Error(err)
	}
}

func TestACallRunsOnWhenItsCallerGoesAway(t *testing.T) {
	var o serving.Once[string]
	running, finish := make(chan struct{}), make(chan struct{})
	run := func() (string, *mesherr.Error) { close(running); <-finish; return "done", nil }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-running; cancel() }()
	if _, err := o.Do(ctx, "id", wrapperspb.String("a"), run, serving.NothingWasDone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(finish)
	if got, err := o.Do(t.Context(), "id", wrapperspb.String("a"), nil, serving.NothingWasDone); got != "done" || err != nil {
		t.Error(got, err)
	}
}

func TestAPanicIsAFaultAndNotTold(t *testing.T) {
	service := newService("pantry", "i", 0)
	session := open(t, service)
	service.sessions.open[session].pantry = nil // stocking it panics
	_, err := service.CallTool(t.Context(), &resourcev1.CallToolRequest{
		SessionId: session, Name: "stock", Arguments: []byte(`{"item":"tea"}`), RequestId: "a",
	})
	if !errors.Is(err, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_ENVIRONMENT_FAULT, "")) ||
		strings.Contains(err.Error(), "nil map") {
		t.Error(err)
	}
}

func TestMoreSessionsThanAnswersAreKept(t *testing.T) {
	service := newService("pantry", "i", 0)
	for i := range 3 * serving.AnswersKept {
		made, err := service.CreateSession(t.Context(), &resourcev1.CreateSessionRequest{
			Task: service.examples[0], RequestId: fmt.Sprint(i),
		})
		if err != nil {
			t.Fatal(err)
		}
		closing := &resourcev1.CloseSessionRequest{SessionId: made.GetSessionId()}
		if _, err := service.CloseSession(t.Context(), closing); err != nil {
			t.Fatal(err)
		}
	}
	if kept := service.sessions.creating.Known(); kept > 0 {
		t.Errorf("%d ids of closed sessions are kept", kept)
	}
}
