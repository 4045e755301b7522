-- Trains a network with dropout on the full MNIST set. get.sh fetches the files.
--
--   argand examples/mnist/main.lua [--data DIR] [--epochs N] [--validate]
--
-- --validate holds a tenth of the training part back and reports on it, not on the test part: that is how
-- the constants below were chosen.

local ag = require "argand"
local progress = require "argand.progress"
local nn, optim, data = ag.nn, ag.optim, ag.data

local BATCH_SIZE, LEARNING_RATE, DROPOUT, SEED = 128, 5e-3, 0.2, 1

local here = arg[0]:match "^(.*)/[^/]*$" or "."

local function fail(code, ...)
  io.stderr:write(table.concat({ ... }), "\n")
  os.exit(code)
end

local function read_arguments()
  local settings = { data = here .. "/data", epochs = 5 }
  local position = 1
  while arg[position] do
    local name, value = arg[position]:match "^%-%-(%a+)$", arg[position + 1]
    if name == "validate" then
      settings.validate = true
      position = position + 1
    elseif (name == "data" or name == "epochs") and value then
      settings[name] = value
      position = position + 2
    else
      fail(2, "usage: main.lua [--data DIR] [--epochs N] [--validate]")
    end
  end
  settings.epochs = tonumber(settings.epochs)
  if not settings.epochs or settings.epochs < 1 then fail(2, "--epochs: expected a number from 1 on") end
  return settings
end

-- Images stay u8 in memory, 47 MB instead of 188; a batch becomes f32 [n, 784] when it is made.
local function to_input(x, y)
  return x:flatten(2):to("f32"):div(255), y
end

local function load_part(directory, part)
  local set, err = data.idx(("%s/%s-images-idx3-ubyte"):format(directory, part),
    ("%s/%s-labels-idx1-ubyte"):format(directory, part))
  if not set then fail(1, tostring(err), "\nrun ", here, "/get.sh first, or name the folder: --data DIR") end
  return set
end

local settings = read_arguments()
ag.manual_seed(SEED)

local train_set = load_part(settings.data, "train")
local num_classes, num_pixels = #train_set.classes, train_set.tensors[1][1]:numel()
local held_out
if settings.validate then
  train_set, held_out = data.split(train_set, { 0.9, 0.1 }, { seed = SEED })
else
  held_out = load_part(settings.data, "t10k")
end
local train_loader = data.Loader(train_set,
  { batch_size = BATCH_SIZE, shuffle = true, seed = SEED, transform = to_input })
local held_out_loader = data.Loader(held_out, { batch_size = 1000, transform = to_input })

local model = nn.Sequential(
  nn.Linear(num_pixels, 256, { activation = "relu" }),
  nn.Dropout(DROPOUT),
  nn.Linear(256, num_classes))
local optimizer = optim.AdamW(model:parameters(), { lr = LEARNING_RATE })
print(model)
print(("%d images to train on, %d for %s"):format(#train_set, #held_out, settings.validate and "validation" or "test"))

local function train_epoch(label)
  local total = 0
  model:train()
  for x, y in progress(train_loader:batches(), { total = #train_loader, label = label }) do
    local loss = model(x):cross_entropy(y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    total = total + loss:item() * #x
  end
  return total / #train_set
end

local function held_out_accuracy()
  model:eval()
  return ag.no_grad(function()
    local correct = 0
    for x, y in held_out_loader:batches() do
      correct = correct + model(x):argmax(-1):eq(y):sum():item()
    end
    return correct / #held_out
  end)
end

for epoch = 1, settings.epochs do
  local started = ag.now()
  -- The rate falls to a tenth from the first epoch to the last.
  optimizer.lr = LEARNING_RATE * 0.1 ^ ((epoch - 1) / math.max(settings.epochs - 1, 1))
  local loss = train_epoch("epoch " .. epoch)
  local seconds = ag.now() - started
  local report = ("epoch %d  loss %.4f  %.2f s"):format(epoch, loss, seconds)
  if settings.validate then report = report .. ("  validation accuracy %.4f"):format(held_out_accuracy()) end
  print(report)
end
if not settings.validate then print(("test accuracy %.4f"):format(held_out_accuracy())) end
