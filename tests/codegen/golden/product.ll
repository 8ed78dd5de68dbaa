; direct.tiled|dense.inner=1,dense.m=2,dense.m.block=2,dense.n=2,dense.n.block=2,dense.outer=1,dense.unroll=2
; a, w, bias, y
define void @kernel_r0(ptr %args, i64 %thread, i64 %first, i64 %past) #0 {
entry:
  %v1 = getelementptr ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %v1, align 8
  %v3 = getelementptr ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %v3, align 8
  %v5 = getelementptr ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %v5, align 8
  %v7 = getelementptr ptr, ptr %args, i64 3
  %base8 = load ptr, ptr %v7, align 8
  %v10 = icmp slt i64 %first, %past
  br i1 %v10, label %L9, label %L9.exit
L9:
  %_p.L9 = phi i64 [ %first, %entry ], [ %v78, %L13.exit ]
  %v11 = urem i64 %_p.L9, 1
  %v12 = urem i64 %_p.L9, 1
  br label %L13
L13:
  %m.1.L13 = phi i64 [ 0, %L9 ], [ %v75, %L14.exit ]
  %m19 = phi ptr [ %base2, %L9 ], [ %v71, %L14.exit ]
  %m61 = phi ptr [ %base8, %L9 ], [ %v73, %L14.exit ]
  br label %L14
L14:
  %k.0.L14 = phi i64 [ 0, %L13 ], [ %v57, %L14 ]
  %m20 = phi ptr [ %m19, %L13 ], [ %v53, %L14 ]
  %m24 = phi ptr [ %base4, %L13 ], [ %v55, %L14 ]
  %a15 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v42, %L14 ]
  %a16 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v45, %L14 ]
  %a17 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v50, %L14 ]
  %a18 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v51, %L14 ]
  %v21 = load float, ptr %m20, align 4
  %v22 = insertelement <8 x float> poison, float %v21, i64 0
  %v23 = shufflevector <8 x float> %v22, <8 x float> poison, <8 x i32> zeroinitializer
  %v25 = load <8 x float>, ptr %m24, align 4
  %v26 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v23, <8 x float> %v25, <8 x float> %a15)
  %p27 = getelementptr float, ptr %m24, i64 8
  %v28 = load <8 x float>, ptr %p27, align 4
  %v29 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v23, <8 x float> %v28, <8 x float> %a16)
  %p30 = getelementptr float, ptr %m20, i64 6
  %v31 = load float, ptr %p30, align 4
  %v32 = insertelement <8 x float> poison, float %v31, i64 0
  %v33 = shufflevector <8 x float> %v32, <8 x float> poison, <8 x i32> zeroinitializer
  %v34 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v33, <8 x float> %v25, <8 x float> %a17)
  %v35 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v33, <8 x float> %v28, <8 x float> %a18)
  %p36 = getelementptr float, ptr %m20, i64 1
  %v37 = load float, ptr %p36, align 4
  %v38 = insertelement <8 x float> poison, float %v37, i64 0
  %v39 = shufflevector <8 x float> %v38, <8 x float> poison, <8 x i32> zeroinitializer
  %p40 = getelementptr float, ptr %m24, i64 16
  %v41 = load <8 x float>, ptr %p40, align 4
  %v42 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v39, <8 x float> %v41, <8 x float> %v26)
  %p43 = getelementptr float, ptr %m24, i64 24
  %v44 = load <8 x float>, ptr %p43, align 4
  %v45 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v39, <8 x float> %v44, <8 x float> %v29)
  %p46 = getelementptr float, ptr %m20, i64 7
  %v47 = load float, ptr %p46, align 4
  %v48 = insertelement <8 x float> poison, float %v47, i64 0
  %v49 = shufflevector <8 x float> %v48, <8 x float> poison, <8 x i32> zeroinitializer
  %v50 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v49, <8 x float> %v41, <8 x float> %v34)
  %v51 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v49, <8 x float> %v44, <8 x float> %v35)
  %v52 = getelementptr float, ptr %m20, i64 2
  %v53 = call ptr asm "", "=r,0"(ptr %v52)
  %v54 = getelementptr float, ptr %m24, i64 32
  %v55 = call ptr asm "", "=r,0"(ptr %v54)
  %v56 = add nuw nsw i64 %k.0.L14, 1
  %v57 = call i64 asm "", "=r,0"(i64 %v56)
  %v58 = icmp slt i64 %v57, 3
  br i1 %v58, label %L14, label %L14.exit
L14.exit:
  %v59 = load <8 x float>, ptr %base6, align 4
  %v60 = fadd <8 x float> %v42, %v59
  store <8 x float> %v60, ptr %m61, align 4
  %p62 = getelementptr float, ptr %base6, i64 8
  %v63 = load <8 x float>, ptr %p62, align 4
  %v64 = fadd <8 x float> %v45, %v63
  %p65 = getelementptr float, ptr %m61, i64 8
  store <8 x float> %v64, ptr %p65, align 4
  %v66 = fadd <8 x float> %v50, %v59
  %p67 = getelementptr float, ptr %m61, i64 16
  store <8 x float> %v66, ptr %p67, align 4
  %v68 = fadd <8 x float> %v51, %v63
  %p69 = getelementptr float, ptr %m61, i64 24
  store <8 x float> %v68, ptr %p69, align 4
  %v70 = getelementptr float, ptr %m19, i64 12
  %v71 = call ptr asm "", "=r,0"(ptr %v70)
  %v72 = getelementptr float, ptr %m61, i64 32
  %v73 = call ptr asm "", "=r,0"(ptr %v72)
  %v74 = add nuw nsw i64 %m.1.L13, 1
  %v75 = call i64 asm "", "=r,0"(i64 %v74)
  %v76 = icmp slt i64 %v75, 2
  br i1 %v76, label %L13, label %L13.exit
L13.exit:
  %v77 = add nuw nsw i64 %_p.L9, 1
  %v78 = call i64 asm "", "=r,0"(i64 %v77)
  %v79 = icmp slt i64 %v78, %past
  br i1 %v79, label %L9, label %L9.exit
L9.exit:
  ret void
}
