--- pow: sample data; of ints only by exponents from 0 on.
local samples = require "support.samples"

return samples.binary {a = {range = {0.3, 2}}, b = {range = {-2, 2}, ints = {0, 3}}, smooth = true,
  expect = {{{a = {2, -2, 9}, b = {3, 2, 0.5}}, {8, 4, 3}}}}
