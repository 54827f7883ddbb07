package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	resourcev1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/resource/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	verifyv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/verify/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
	"github.com/gymmesh/gymmesh/clients/go/rows"
)

// version changes when tools or verdicts may change.
const version = "1"

const exampleTask = `{"task_id": "pantry-1", "responses_create_params": {"input": [{"role": "user",
  "content": "Stock three loaves of bread and a tea, and answer with the number of all things alone."}]},
  "wanted": {"bread": 3, "tea": 1}}`

// service is the environment and its verifier.
type service struct {
	resourcev1.UnimplementedResourceServiceServer
	verifyv1.UnimplementedVerifyServiceServer
	verifyv1.UnimplementedAuditServiceServer
	name, id string
	audit    bool // whether GetExpected is answered
	sessions *sessions
	tools    []*responsesv1.Tool
	examples []*rolloutv1.Task
}

func newService(name, id string, limit int) *service {
	example, err := rows.ReadTask([]byte(exampleTask), rows.TaskDefaults{Environment: name, Agent: "tool_loop"})
	if err != nil {
		panic(err) // the text above is constant
	}
	example.Agent = "" // any agent will do
	return &service{
		name: name, id: id, sessions: newSessions(limit),
		tools: pantryTools(), examples: []*rolloutv1.Task{example},
	}
}

func (s *service) GetEnvironment(
	context.Context, *resourcev1.GetEnvironmentRequest,
) (*resourcev1.GetEnvironmentResponse, error) {
	return &resourcev1.GetEnvironmentResponse{
		Name: s.name, Version: version, InstanceId: s.id, ContractVersion: mesh.ContractVersion,
		Description:        "A pantry to be stocked as the task asks.",
		VerifyNeedsSession: true, RetrySafe: true,
		RewardRule:     resourcev1.RewardRule_REWARD_RULE_VERIFIER_ONLY,
		SessionIdleS:   uint32(sessionIdle / time.Second),
		SessionLimit:   uint32(s.sessions.limit),
		OffersExpected: s.audit,
	}, nil
}

func (s *service) ListTasks(
	_ context.Context, request *resourcev1.ListTasksRequest,
) (*resourcev1.ListTasksResponse, error) {
	tasks, next, err := page(s.examples, request.GetPageSize(), request.GetPageToken())
	return &resourcev1.ListTasksResponse{Tasks: tasks, NextPageToken: next}, err
}

func (s *service) ListTools(
	_ context.Context, request *resourcev1.ListToolsRequest,
) (*resourcev1.ListToolsResponse, error) {
	tools, next, err := page(s.tools, request.GetPageSize(), request.GetPageToken())
	return &resourcev1.ListToolsResponse{Tools: tools, NextPageToken: next}, err
}

// page gives a page of a list; a token is the place where the page begins.
func page[T any](all []T, size int32, token string) ([]T, string, error) {
	if size < 0 {
		return nil, "", invalid("page_size", "must not be negative")
	}
	begin := 0
	if token != "" {
		var err error
		if begin, err = strconv.Atoi(token); err != nil || begin < 1 || begin >= len(all) {
			return nil, "", invalid("page_token", "is none of this server's")
		}
	}
	rest := all[begin:]
	if size == 0 || int(size) >= len(rest) {
		return rest, "", nil
	}
	return rest[:size], strconv.Itoa(begin + int(size)), nil
}

func (s *service) CreateSession(
	ctx context.Context, request *resourcev1.CreateSessionRequest,
) (*resourcev1.CreateSessionResponse, error) {
	if request.GetTask() == nil {
		return nil, missing("task")
	}
	if request.GetRequestId() == "" {
		return nil, missing("request_id")
	}
	if _, err := wantedOf(request.GetTask()); err != nil {
		return nil, taskInvalid(request.GetTask(), err)
	}
	made, err := s.sessions.creating.Do(ctx, request.GetRequestId(), request,
		func() (*session, *mesherr.Error) { return s.sessions.create(request) },
		func(*mesherr.Error) bool { return true })
	if err != nil {
		return nil, err
	}
	return &resourcev1.CreateSessionResponse{
		SessionId: made.id, InstanceId: s.id, Tools: s.tools, Seed: made.seed, EnvironmentVersion: version,
	}, nil
}

// seedOf gives the seed in force.
func seedOf(request *resourcev1.CreateSessionRequest) int64 {
	switch {
	case request.Seed != nil:
		return request.GetSeed()
	case request.GetTask().Seed != nil:
		return request.GetTask().GetSeed()
	default:
		return rand.Int64()
	}
}

func (s *service) CallTool(
	ctx context.Context, request *resourcev1.CallToolRequest,
) (*resourcev1.CallToolResponse, error) {
	for field, value := range map[string]string{
		"session_id": request.GetSessionId(), "name": request.GetName(), "request_id": request.GetRequestId(),
	} {
		if value == "" {
			return nil, missing(field)
		}
	}
	session, release, err := s.sessions.get(request.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	return session.tools.Do(ctx, request.GetRequestId(), request,
		func() (*resourcev1.CallToolResponse, *mesherr.Error) { return answerOf(session, request) },
		serving.NothingWasDone)
}

// answerOf runs a tool; what the model did wrong is an answer.
func answerOf(
	session *session, request *resourcev1.CallToolRequest,
) (answer *resourcev1.CallToolResponse, fault *mesherr.Error) {
	// In a goroutine of its own, where a panic would end the server.
	defer func() {
		if thrown := recover(); thrown != nil {
			fault = faultOf(thrown)
		}
	}()
	begun := time.Now()
	outcome := rolloutv1.ToolOutcome_TOOL_OUTCOME_OK
	text, err := callTool(session, request.GetName(), request.GetArguments())
	var mistake *toolMistake
	if errors.As(err, &mistake) {
		outcome, text = mistake.outcome, mistake.text
	} else if session.ctx.Err() != nil {
		return nil, notFound(session.id)
	} else if err != nil {
		return nil, faultOf(err)
	}
	return &resourcev1.CallToolResponse{
		Output:     &resourcev1.CallToolResponse_Text{Text: []byte(text)},
		Outcome:    outcome,
		DurationUs: uint64(time.Since(begun).Microseconds()),
	}, nil
}

func (s *service) NextTurn(
	context.Context, *resourcev1.NextTurnRequest,
) (*resourcev1.NextTurnResponse, error) {
	return nil, notOffered("gymmesh.resource.v1.ResourceService/NextTurn")
}

func (s *service) CloseSession(
	_ context.Context, request *resourcev1.CloseSessionRequest,
) (*resourcev1.CloseSessionResponse, error) {
	if request.GetSessionId() == "" {
		return nil, missing("session_id")
	}
	s.sessions.remove(request.GetSessionId())
	return &resourcev1.CloseSessionResponse{}, nil
}

func (s *service) Verify(
	_ context.Context, request *verifyv1.VerifyRequest,
) (*verifyv1.VerifyResponse, error) {
	if request.GetTask() == nil {
		return nil, missing("task")
	}
	if request.GetStopReason() == rolloutv1.StopReason_STOP_REASON_UNSPECIFIED {
		return nil, missing("stop_reason")
	}
	wanted, err := wantedOf(request.GetTask())
	if err != nil {
		return nil, taskInvalid(request.GetTask(), err)
	}
	session, release, err := s.sessions.get(request.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	session.mu.Lock()
	defer session.mu.Unlock()
	return &verifyv1.VerifyResponse{
		Verification: judge(wanted, session.pantry, request.GetTranscript()),
	}, nil
}

func (s *service) VerifyGroup(
	context.Context, *verifyv1.VerifyGroupRequest,
) (*verifyv1.VerifyGroupResponse, error) {
	return nil, notOffered("gymmesh.verify.v1.VerifyService/VerifyGroup")
}

func missing(field string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_REQUIRED_FIELD_MISSING,
		field+" is required", "field", field)
}

func invalid(field, sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID,
		field+" "+sentence, "field", field)
}

func taskInvalid(task *rolloutv1.Task, err error) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_TASK_INVALID, err.Error(),
		"task_id", task.GetTaskId(), "field", "wanted")
}

func notOffered(method string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_NOT_OFFERED,
		"the environment does not offer this", "method", method)
}

// faultOf is a fault of the environment; its words, which may hold anything, stay in the log.
func faultOf(thrown any) *mesherr.Error {
	return serving.Fault(errorsv1.ErrorReason_ERROR_REASON_ENVIRONMENT_FAULT, thrown)
}
