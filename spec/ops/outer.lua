--- outer: sample data.
return {
  calls = {{a = {4}, b = {3}}}, empty = {{a = {0}, b = {3}}}, smooth = true, large = {a = {317}, b = {317}},
  expect = {{{a = {1, 2}, b = {3, 4}}, {{3, 4}, {6, 8}}}},
}
