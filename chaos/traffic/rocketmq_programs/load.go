// RocketMQ's own client for Go, as load.py is for Python. Usage: load HOST:PORT TOPIC FIRST_TOKEN
//
// It tells no "done": its Ack returns no error where the answer is a refusal.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	pause          = 40 * time.Millisecond
	recalledBefore = 50 * time.Millisecond
)

type later struct {
	due    time.Time
	token  int
	handle string
}

var (
	topic string
	lock  sync.Mutex
	stops = make(chan struct{})
	ends  = make(chan struct{})
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(fields ...any) {
	text, err := json.Marshal(fields)
	must(err)
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(text))
}

func now() int64 { return time.Now().UnixMilli() }

func closed(one chan struct{}) bool {
	select {
	case <-one:
		return true
	default:
		return false
	}
}

func got(group string, view *rocketmq.MessageView) int {
	token, err := strconv.Atoi(string(view.GetBody()))
	must(err)
	_, marked := view.GetProperties()["tarry.maybe_duplicate"]
	tell("got", group, token, view.GetMessageId(), view.GetDeliveryAttempt(), marked, now())
	return token
}

func receive(consumer rocketmq.SimpleConsumer) {
	background := context.Background()
	for !closed(ends) {
		views, err := consumer.Receive(background, 32, 10*time.Second)
		if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") { // nothing new is an error here
			tell("failed", "receive", err.Error())
			time.Sleep(100 * time.Millisecond)
		}
		for _, view := range views {
			got("simple", view) // all of them before an ack waits for a leader
		}
		for _, view := range views {
			if err := consumer.Ack(background, view); err != nil {
				tell("failed", "ack", err.Error())
			}
		}
	}
}

func recall(producer rocketmq.Producer, token int, handle string) {
	failed := ""
	if _, err := producer.Recall(context.Background(), topic, handle); err != nil {
		failed = err.Error()
	}
	tell("recalled", token, now(), failed)
}

func send(producer rocketmq.Producer, token int) *later {
	kind := token % 10
	message := &rocketmq.Message{Topic: topic, Body: []byte(strconv.Itoa(token))}
	begun := time.UnixMilli(now())
	due, key := begun, ""
	if kind == 3 || kind == 8 {
		key = fmt.Sprintf("go-%d", token%4)
		message.SetMessageGroup(key)
	} else if kind != 1 && kind != 6 {
		due = begun.Add(1500 * time.Millisecond)
		message.SetDelayTimestamp(due)
	}
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		tell("sent", token, key, due.UnixMilli(), begun.UnixMilli(), now(), "", err.Error())
		return nil
	}
	tell("sent", token, key, due.UnixMilli(), begun.UnixMilli(), now(), receipts[0].MessageID, "")
	if kind == 0 {
		recall(producer, token, receipts[0].RecallHandle)
	} else if kind == 2 || kind == 5 {
		return &later{due, token, receipts[0].RecallHandle}
	}
	return nil
}

func listen() {
	lines := bufio.NewReader(os.Stdin)
	_, _ = lines.ReadString('\n')
	close(stops)
	_, _ = lines.ReadString('\n')
	close(ends)
}

func config(address, group string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
}

func main() {
	address := os.Args[1]
	topic = os.Args[2]
	token, err := strconv.Atoi(os.Args[3])
	must(err)
	rocketmq.EnableSsl = false
	producer, err := rocketmq.NewProducer(config(address, ""), rocketmq.WithTopics(topic))
	must(err)
	must(producer.Start())
	all := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	push, err := rocketmq.NewPushConsumer(config(address, "push"),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(all),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
				if got("push", view)%10 == 4 && view.GetDeliveryAttempt() == 1 {
					return rocketmq.FAILURE
				}
				return rocketmq.SUCCESS
			},
		}))
	must(err)
	must(push.Start())
	simple, err := rocketmq.NewSimpleConsumer(config(address, "simple"),
		rocketmq.WithSimpleAwaitDuration(5*time.Second), rocketmq.WithSimpleSubscriptionExpressions(all))
	must(err)
	must(simple.Start())
	go listen()
	var receiving sync.WaitGroup
	receiving.Add(1)
	go func() {
		defer receiving.Done()
		receive(simple)
	}()
	tell("begun")
	waiting := []*later{}
	for !closed(stops) || len(waiting) > 0 {
		if !closed(stops) {
			if one := send(producer, token); one != nil {
				waiting = append(waiting, one)
			}
			token++
		}
		for len(waiting) > 0 && time.Until(waiting[0].due) <= recalledBefore {
			recall(producer, waiting[0].token, waiting[0].handle)
			waiting = waiting[1:]
		}
		time.Sleep(pause)
	}
	tell("stopped")
	<-ends
	receiving.Wait()
	must(push.GracefulStop())
	must(simple.GracefulStop())
	must(producer.GracefulStop())
	tell("ended")
}
