--- install: what `cmake --install` puts under a prefix works from there.
-- Stock LuaJIT, C through pkg-config and through CMake, the command.
local ag = require "argand"

local root = debug.getinfo(1, "S").source:match "^@(.*)spec/install/install_spec%.lua$" or ""
if root == "" then root = "." end

-- Runs a line of shell; its output (errors too) and whether it ended with status 0.
local function shell(line)
  local pipe = assert(io.popen("{ " .. line .. "\n} 2>&1; echo status $?"))
  local output = pipe:read "*a"
  pipe:close()
  local text, status = output:match "^(.-)status (%d+)\n$"
  return text, status == "0"
end

local function run(line)
  local text, ok = shell(line)
  if not ok then error(line .. "\n" .. text, 2) end
  return text
end

-- The shell's parent is this process.
local build = run "readlink /proc/$PPID/exe":match "^(.*)/argand\n$"
local is_instrumented = not ag.info().build:find("sanitizers: none", 1, true)

describe("an installed tree", function()
  if is_instrumented then
    pending "works from its prefix: stock LuaJIT cannot load a library built with sanitizers"
    return
  end

  local scratch, prefix, env

  setup(function()
    scratch = run "mktemp -d":match "^[^\n]+"
    -- Installed once, then moved: nothing in the tree may hold the prefix it was installed to.
    run(("cmake --install '%s' --prefix '%s/first'"):format(build, scratch))
    prefix = scratch .. "/moved"
    run(("mv '%s/first' '%s'"):format(scratch, prefix))
    env = "env -i PATH=/usr/bin:/bin "
  end)

  teardown(function()
    if scratch then run(("rm -rf '%s'"):format(scratch)) end
  end)

  it("has every part where it belongs", function()
    for _, path in ipairs {"bin/argand", "include/argand.h", "lib/libargand.so", "lib/pkgconfig/argand.pc",
      "lib/cmake/argand/argand-config.cmake", "lib/lua/5.1/argand/core.so", "share/lua/5.1/argand/init.lua",
      "share/lua/5.1/argand/nn/init.lua"} do
      run(("test -r '%s/%s'"):format(prefix, path))
    end
    -- Headers of the engine's inside and objects of the build stay out.
    assert.equal("argand.h\n", run(("ls '%s/include'"):format(prefix)))
  end)

  it("serves stock LuaJIT through LUA_PATH and LUA_CPATH", function()
    local text = run(env .. ("LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;' "):format(prefix, prefix)
      .. ("LUA_CPATH='%s/lib/lua/5.1/?.so;;' "):format(prefix)
      .. [[luajit -e 'local ag = require "argand"; print(ag.ones(2, 3):matmul(ag.ones(3, 2)):sum():item(), ag.nn ~= nil)']])
    assert.equal("12\ttrue\n", text)
  end)

  it("lies on the search path of stock LuaJIT when the prefix is /usr/local", function()
    local text = run(env .. "luajit -e 'print(package.path) print(package.cpath)'")
    for _, pattern in ipairs {"/usr/local/share/lua/5.1/?.lua", "/usr/local/share/lua/5.1/?/init.lua",
      "/usr/local/lib/lua/5.1/?.so"} do
      assert.is_truthy(text:find(pattern, 1, true))
    end
  end)

  it("brings its command, which finds the library beside itself", function()
    local line = [['%s/bin/argand' -e 'print(ag.arange(1, 5):sum():item(), package.searchpath("argand", package.path))']]
    local text = run("cd / && " .. env .. line:format(prefix))
    assert.equal(("10\t%s/bin/../share/lua/5.1/argand/init.lua\n"):format(prefix), text)
  end)

  it("builds a C program through pkg-config", function()
    local line = "cd '%s' && %s PKG_CONFIG_PATH='%s/lib/pkgconfig' sh -c 'gcc -std=c11 -Wall -Wextra -Werror main.c "
      .. "-o with-pkg-config $(pkg-config --cflags --libs argand)' && LD_LIBRARY_PATH='%s/lib' ./with-pkg-config"
    run(("cp '%s/examples/embed-c/main.c' '%s/main.c'"):format(root, scratch))
    local text = run(line:format(scratch, env, prefix, prefix))
    assert.is_truthy(text:find("y = 2.00 x -1.00", 1, true))
  end)

  it("builds a C program through find_package", function()
    run(("mkdir '%s/consumer' && cp '%s/examples/embed-c/main.c' '%s/consumer/main.c' "):format(scratch, root, scratch)
      .. ("&& cp '%s/spec/install/consumer.cmake' '%s/consumer/CMakeLists.txt'"):format(root, scratch))
    local line = "cd '%s/consumer' && %s cmake -S . -B build -DCMAKE_PREFIX_PATH='%s' && %s cmake --build build "
      .. "&& ./build/consumer"
    local text = run(line:format(scratch, env, prefix, env))
    assert.is_truthy(text:find("y = 2.00 x -1.00", 1, true))
  end)
end)
