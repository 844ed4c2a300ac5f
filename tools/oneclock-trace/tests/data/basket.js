// A trace in a program, as test suites have them.
import { drawn } from './drawn';

const basket = {
  traceID: 'b1',
  spans: [
    { spanID: 's1', operationName: 'GET /basket', references: [], startTime: 1000, duration: 400, processID: 'p1' },
    {
      spanID: 's2',
      operationName: 'prices',
      references: [{ refType: 'CHILD_OF', traceID: 'b1', spanID: 's1' }],
      startTime: 1100,
      duration: 250,
      processID: 'p1',
    },
  ],
  processes: { p1: { serviceName: 'basket' } },
};

export default drawn(basket);
