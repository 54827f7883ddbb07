package io.gymmesh.client;

import java.io.IOException;

/**
 * The fake agent as a program, with what a server of grpc-java does by default. It prints its
 * address, and ends with its input.
 */
final class FakeAgentProgram {
  private FakeAgentProgram() {}

  public static void main(String[] arguments) throws IOException {
    try (FakeAgent agent = new FakeAgent()) {
      System.out.println(agent.address());
      while (System.in.read() >= 0) {
        // What is said does not matter.
      }
    }
  }
}
