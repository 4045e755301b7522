--- dot: sample data.
return {
  calls = {{a = {4}, b = {4}}}, empty = {{a = {0}, b = {0}}}, smooth = true,
  large = {a = {100003}, b = {100003}}, large_magnitude = 10000,
  expect = {{{a = {1, 2}, b = {3, 4}}, 11}},
}
